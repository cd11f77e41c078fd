"""BlockingWorkQueue: the same promises for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from queue_world import SHARES, left, read_all
from running_tasks import wait_until

from kohort.client import BlockingJob, BlockingWorkQueue, Closed, LockLost, Misuse, Reject, Retry
from kohort.testing import KohortServer, ManualClock

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer(**SHARES) as found:
        yield found


def queue_of(server: KohortServer, **options: Any) -> BlockingWorkQueue:
    settings: dict[str, Any] = {"group": "g", "retry_backoff": 0.01, "close_timeout": 1.0, **options}
    return BlockingWorkQueue(server.bootstrap_servers, "jobs", **settings)


def test_threads_work_on_jobs(server: KohortServer) -> None:
    seen: list[tuple[bytes | None, int]] = []
    names: set[str] = set()
    together = threading.Barrier(3)

    def work(job: BlockingJob) -> None:
        names.add(threading.current_thread().name)
        if job.value == b"together":
            together.wait(20)
        seen.append((job.value, job.deliveries))
        if job.value == b"retried" and job.deliveries == 1:
            raise Retry(after=0)
        if job.value == b"bad":
            raise Reject("no")

    with queue_of(server, dead_letter="dlq.jobs") as queue:
        for value in ("together", "together", "together", "retried", "bad"):
            queue.put(value)
        runner = threading.Thread(target=queue.run, args=(work, 3))
        runner.start()
        wait_until(lambda: len(seen) == 6 and not queue.open_jobs, "all are done")
    runner.join()
    assert sorted(seen)[-2:] == [(b"together", 1), (b"together", 1)]
    assert (b"retried", 2) in seen
    assert len(names) == 3
    assert [letter.value for letter in read_all(server, "dlq.jobs")] == [b"bad"]
    assert left(server, "g") == 0


def test_jobs_one_by_one(server: KohortServer) -> None:
    with queue_of(server) as queue:
        for number in range(3):
            queue.put(str(number), key=b"k")
        taken = queue.take()
        with next(taken) as job:
            assert (job.value, job.key, job.offset, job.topic) == (b"0", b"k", 0, "jobs")
            assert repr(queue) == "<blocking work queue 'jobs' of group 'g', 1 jobs at work>"
        job = next(taken)
        job.release()
        with pytest.raises(Misuse, match="has an outcome already"):
            job.ack()
        with pytest.raises(KeyboardInterrupt), next(taken):
            raise KeyboardInterrupt
        for job in taken:
            job.ack()
            if left(server, "g") == 0:
                break
    assert queue.next() is None
    with pytest.raises(Closed):
        queue.put("a")


def test_a_slow_job_keeps_its_lock_and_an_interrupted_one_is_given_back() -> None:
    clock = ManualClock()
    with (
        KohortServer(clock=clock, **SHARES) as server,
        queue_of(server, lock=4.0) as queue,
        queue_of(server, lock=4.0) as other,
    ):
        queue.put("slow")
        job = next(queue.take())
        began = job.deadline
        wait_until(lambda: job.deadline > began + 1, "the lock is extended in the background")
        clock.advance(3_000)
        job.extend()
        clock.advance(3_000)
        other.begin(1)
        assert other.next(0.1) is None
        assert job.valid
        queue.close()  # waits for the job, and gives it back
        again = other.next(20)
        assert again is not None
        assert again.deliveries == 2
        with pytest.raises((LockLost, Closed)):
            job.ack()
        again.ack()


def test_what_cannot_be(server: KohortServer) -> None:
    async def coroutine(job: Any) -> None:
        pass

    with queue_of(server) as queue:
        with pytest.raises(Misuse, match="those are for WorkQueue"):
            queue.run(coroutine)
        raised: list[BaseException] = []

        def work(job: BlockingJob) -> None:
            try:
                queue.close()
            except BaseException as error:
                raised.append(error)

        queue.put("a")
        runner = threading.Thread(target=queue.run, args=(work,))
        runner.start()
        wait_until(lambda: raised and not queue.open_jobs, "the job is done")
    runner.join()
    assert isinstance(raised[0], Misuse)
    with pytest.raises(Closed):
        queue.run(work)
