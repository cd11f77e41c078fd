"""WorkQueue against a server: outcomes, retries, dead letters, locks, kills, limits, priorities."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from queue_world import SHARES, Work, left, put_all, queue_of, read_all
from running_tasks import cancel, running, until

from kohort.client import Job, LockLost, Misuse, Reject, Retry, ServerError, UnsupportedVersion, WorkQueue
from kohort.client.admin.configs import ResourceType
from kohort.client.cluster import Cluster
from kohort.client.queue import broker_session
from kohort.testing import KohortServer, ManualClock

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer(**SHARES) as found:
        yield found


async def test_each_job_is_handed_out_once(server: KohortServer) -> None:
    values = {str(number) for number in range(40)}
    async with queue_of(server, create_topics=True) as first, queue_of(server) as second:
        await put_all(first, *values, key="k", headers={"h": "x"})
        seen: list[Job] = []
        for queue in (first, second):
            async for job in queue.take(concurrency=4):
                async with job:
                    seen.append(job)
                if len(seen) in (20, 40):
                    break
        assert {(job.value or b"").decode() for job in seen} == values
        assert {(job.key, job.headers, job.deliveries) for job in seen} == {(b"k", (("h", b"x"),), 1)}
        assert "finished" in repr(seen[0])
    assert left(server, "g") == 0


async def test_a_failure_is_delivered_again_and_becomes_a_dead_letter(server: KohortServer) -> None:
    def act(job: Job) -> None:
        if job.value == b"bad":
            raise ValueError("no such address")
        if job.value == b"sometimes" and job.deliveries < 3:
            raise Retry(after=0)
        if job.value == b"refused":
            raise Reject("not wanted")

    work = Work(act)
    options: dict[str, Any] = {"max_deliveries": 3, "dead_letter": "dlq.jobs"}
    async with queue_of(server, **options) as queue, running(queue.run(work, concurrency=5)):
        await put_all(queue, "good", "bad", "sometimes", "refused", key="k")
        await until(lambda: len(work.seen) == 8 and not queue.open_jobs, "all have outcomes")
        assert sorted(work.seen) == sorted(
            [("good", 1), *[(name, n) for name in ("bad", "sometimes") for n in (1, 2, 3)], ("refused", 1)]
        )
        letters = {record.value: dict(record.headers) for record in read_all(server, "dlq.jobs")}
        assert letters[b"bad"] == {
            "__dlq.errors.topic": b"jobs",
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": letters[b"bad"]["__dlq.errors.offset"],
            "__dlq.errors.group": b"g",
            "__dlq.errors.delivery.count": b"3",
            "__dlq.errors.message": b"ValueError: no such address",
        }
        assert letters[b"refused"]["__dlq.errors.message"] == b"not wanted"
        assert len(letters) == 2
    assert left(server, "g") == 0


async def test_a_job_that_waits_for_its_retry_uses_no_slot(server: KohortServer) -> None:
    work = Work(lambda job: job.retry(after=60) if job.value == b"later" else None)
    async with queue_of(server) as queue, running(queue.run(work)):
        await put_all(queue, "later")
        await until(lambda: queue.waiting_jobs == 1, "it waits")
        await put_all(queue, *map(str, range(5)))
        await work.count(6)
        assert ("later", 2) not in work.seen
    again = Work()
    async with queue_of(server) as queue, running(queue.run(again)):
        await again.count(1)
    assert again.seen == [("later", 2)], "the pause ends with its worker"


async def test_the_lock_of_a_slow_job_is_extended() -> None:
    """The server's time passes only here, and only behind an extension."""
    clock = ManualClock()
    with KohortServer(clock=clock, **SHARES) as server:
        async with queue_of(server, lock=4.0) as slow, queue_of(server, lock=4.0) as other:
            await slow.put("slow")
            job = await anext(slow.take())
            work = Work()
            async with running(other.run(work)):
                began = job.deadline
                await until(lambda: job.deadline > began + 1, "the lock was extended in the background")
                clock.advance(3_000)
                await job.extend()
                clock.advance(3_000)
                assert job.valid
                await job.ack()
                assert work.seen == []
                with pytest.raises(Misuse, match="has an outcome already"):
                    await job.ack()
        assert left(server, "g") == 0


async def test_the_lock_of_a_job_beyond_its_time_limit_ends() -> None:
    clock = ManualClock()
    with KohortServer(clock=clock, **SHARES) as server:
        work = Work()
        async with (
            queue_of(server, lock=1.0, time_limit=0.1) as slow,
            queue_of(server, lock=1.0, time_limit=0.1) as other,
        ):
            await slow.put("slow")
            job = await anext(slow.take())
            await until(lambda: not job.valid, "the lock has ended")
            async with running(other.run(work)):
                clock.advance(1_500)
                await work.count(1)
            assert work.seen == [("slow", 2)]
            with pytest.raises(LockLost, match="may be delivered again"):
                await job.ack()
            assert slow.open_jobs == 0


async def test_the_handler_of_a_job_beyond_its_time_limit_is_cancelled(server: KohortServer) -> None:
    async def act(job: Job) -> None:
        if job.deliveries == 1:
            await asyncio.Event().wait()

    work = Work(act)
    async with queue_of(server, time_limit=0.1) as queue, running(queue.run(work)):
        await queue.put("slow")
        await work.count(1)
    assert work.seen == [("slow", 1), ("slow", 2)]


async def test_a_worker_that_closes_gives_back_what_it_works_on(server: KohortServer) -> None:
    async with queue_of(server, close_timeout=0.0) as first:
        await put_all(first, "a", "b", "c")
        held = [await anext(first.take(3)), await anext(first.take(3)), await anext(first.take(3))]
        await held[0].ack()
    assert first.open_jobs == 2
    with pytest.raises(LockLost):
        await held[1].ack()
    work = Work()
    async with queue_of(server) as second, running(second.run(work)):
        await work.count(2)
    assert {count for _, count in work.seen} == {2}


async def test_a_worker_that_closes_waits_for_the_end_of_its_jobs(server: KohortServer) -> None:
    async with queue_of(server) as queue:
        await queue.put("a")
        job = await anext(queue.take())
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        await job.ack()
        await closing
    assert left(server, "g") == 0


async def test_a_cancelled_handler_gives_its_job_back_at_once(server: KohortServer) -> None:
    began = asyncio.Event()

    async def act(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    async with queue_of(server) as first, queue_of(server) as second:
        task = asyncio.create_task(first.run(Work(act), concurrency=3))
        await first.put("a")
        await began.wait()
        await cancel(task)
        work = Work()
        async with running(second.run(work)):
            await work.count(1)
        assert work.seen == [("a", 2)]


async def test_work_goes_on_over_a_kill_of_the_server(server: KohortServer) -> None:
    """A job that this worker gets again while it works on it is not worked on twice."""
    release = asyncio.Event()

    async def act(job: Job) -> None:
        if job.value == b"slow":
            await release.wait()

    work = Work(act)
    async with queue_of(server) as queue, running(queue.run(work, concurrency=2)):
        await put_all(queue, "slow", "a", "b")
        await work.count(2)
        server.kill()
        await until(lambda: queue.open_jobs == 1, "the slow job is worked on")
        server.start()
        await put_all(queue, "c")
        await work.count(3)
        release.set()
        await work.count(4)
        await until(lambda: not queue.open_jobs, "all are finished")
    assert [value for value, _ in work.seen].count("slow") == 1
    assert left(server, "g") == 0


async def test_an_outcome_that_a_kill_has_lost_is_stored_when_the_job_comes_back(server: KohortServer) -> None:
    async with queue_of(server) as queue:
        await queue.put("a")
        job = await anext(queue.take())
        server.kill()
        await until(lambda: not job.valid, "the lock is lost")
        with pytest.raises(LockLost):
            await job.ack()
        server.start()
        work = Work()
        async with running(queue.run(work)):
            await until(lambda: left(server, "g") == 0, "the job is finished")
        assert work.seen == []


async def test_kills_and_closes_lose_no_job(server: KohortServer) -> None:
    values = [str(number) for number in range(60)]
    work = Work(lambda job: asyncio.sleep(0.002))
    async with contextlib.AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(queue_of(server, max_deliveries=9)) for _ in range(3)]
        await put_all(queues[0], *values)
        await stack.enter_async_context(running(*(queue.run(work, concurrency=3) for queue in queues)))
        for number in (10, 25, 40):
            await work.count(number)
            server.kill()
            server.start()
        await until(lambda: set(work.done) == set(values), "each is done")
        await until(lambda: left(server, "g") == 0, "all are finished")


async def test_the_last_delivery_of_a_worker_that_dies_becomes_a_dead_letter(server: KohortServer) -> None:
    options: dict[str, Any] = {"max_deliveries": 1, "dead_letter": "dlq.jobs"}
    async with queue_of(server, close_timeout=0.0, **options) as first:
        await first.put("fatal")
        await anext(first.take())
    async with queue_of(server, **options) as second, running(second.run(Work())):
        await until(lambda: read_all(server, "dlq.jobs"), "the dead letter is written")
        await until(lambda: left(server, "g") == 0, "the job is finished")
    [letter] = read_all(server, "dlq.jobs")
    assert dict(letter.headers)["__dlq.errors.message"] == b"1 deliveries had no outcome"


async def test_a_dead_letter_that_cannot_be_written_is_tried_again(server: KohortServer) -> None:
    """The topic of dead letters takes small records only, for a while."""
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("dlq.jobs", 1, configs={"max.message.bytes": "100"})

        async with queue_of(server, dead_letter="dlq.jobs", retry_backoff_max=0.05) as queue:
            await queue.put("x" * 200)
            job = await anext(queue.take())
            async with job:
                raise Reject("no")
            assert job.is_open is False
            cluster.alter_configs(ResourceType.TOPIC, "dlq.jobs", {"max.message.bytes": "10000"})
            await until(lambda: read_all(server, "dlq.jobs"), "the dead letter is written")
            await until(lambda: left(server, "g") == 0, "the job is finished")
            assert queue.waiting_jobs == 0


async def test_jobs_of_one_key_are_worked_on_one_by_one(server: KohortServer) -> None:
    running_now: dict[bytes | None, int] = {}
    most: dict[bytes | None, int] = {}

    async def act(job: Job) -> None:
        running_now[job.key] = running_now.get(job.key, 0) + 1
        most[job.key] = max(most.get(job.key, 0), running_now[job.key])
        await asyncio.sleep(0.005)
        running_now[job.key] -= 1

    work = Work(act)
    async with queue_of(server, key_concurrency=1) as queue, running(queue.run(work, concurrency=8)):
        for number in range(24):
            await queue.put(str(number), key="ab"[number % 2])
        await put_all(queue, *(f"free{number}" for number in range(8)))
        await work.count(32)
    assert (most[b"a"], most[b"b"]) == (1, 1)
    numbers = [int(value) for value, _ in work.seen if value.isdigit()]
    assert [number for number in numbers if number % 2] == sorted(number for number in numbers if number % 2)


async def test_a_group_works_on_no_more_jobs_than_it_may(server: KohortServer) -> None:
    most = 0

    async def act(job: Job) -> None:
        nonlocal most
        most = max(most, sum(queue.open_jobs for queue in queues))
        await asyncio.sleep(0.005)

    async with contextlib.AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(queue_of(server, group_concurrency=2)) for _ in range(2)]
        work = Work(act)
        await put_all(queues[0], *map(str, range(20)))
        async with running(*(queue.run(work, concurrency=6) for queue in queues)):
            await work.count(20)
    assert 1 <= most <= 2


async def test_topics_have_priorities(server: KohortServer) -> None:
    work = Work()
    async with queue_of(server, {"urgent": 4, "rest": 1}) as queue:
        await put_all(queue, *["rest"] * 40, topic="rest")
        await put_all(queue, *["urgent"] * 40, topic="urgent")
        async with running(queue.run(work)):
            await work.count(80)
    first = work.done[:20]
    assert 12 <= first.count("urgent") <= 18, "four of five"


async def test_delayed_jobs_and_long_retries(server: KohortServer) -> None:
    loop = asyncio.get_running_loop()
    at: dict[str, float] = {}

    async def act(job: Job) -> None:
        at[(job.value or b"").decode()] = loop.time()
        if job.value == b"retried" and job.deliveries == 1:
            await job.retry(after=2.1)

    work = Work(act)
    async with queue_of(server, lock=2.0, delay_topic="jobs.delays") as queue, running(queue.run(work)):
        began = loop.time()
        await queue.put("later", delay=0.4, key="k")
        await queue.put("now")
        await queue.put("retried")
        await work.count(4)
        assert at["later"] - began >= 0.39
        assert at["retried"] - began >= 2.09
        assert work.seen[-1] == ("retried", 2)
        assert work.seen[0][0] == "now"


async def test_what_cannot_be(server: KohortServer) -> None:
    with pytest.raises(TypeError, match="unknown setting max_delivery; did you mean max_deliveries"):
        queue_of(server, max_delivery=3)
    wrong: dict[str, Any]
    for wrong in ({"lock": 0}, {"max_deliveries": 0}, {"start": "now"}, {"topics": []}, {"topics": {"a": -1}}):
        with pytest.raises(ValueError):
            queue_of(server, **wrong)
    with pytest.raises(ValueError, match="which is a topic of the queue itself"):
        queue_of(server, dead_letter="jobs")
    async with queue_of(server, group=None) as queue:
        assert repr(queue) == "<work queue 'jobs', not taking jobs>"
        with pytest.raises(Misuse, match="has no group"):
            await anext(queue.take())
        with pytest.raises(Misuse, match="a delay needs a delay topic"):
            await queue.put("a", delay=1)
        with pytest.raises(ValueError, match="is no topic of the queue; it has jobs"):
            await queue.put("a", topic="other")
    with pytest.raises(Misuse, match="is closed"):
        await queue.put("a")
    async with queue_of(server, lock=600) as queue:
        with pytest.raises(ServerError, match=r"share\.record\.lock\.duration\.ms") as raised:
            await anext(queue.take())
        assert "a work queue of group g sets" in str(raised.value)
    async with queue_of(server, "missing", create_topics=False) as queue:
        with pytest.raises(ServerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await queue.put("a")


async def test_a_cluster_without_share_groups() -> None:
    with KohortServer() as plain:
        async with queue_of(plain) as queue:
            await queue.put("a")
            with pytest.raises(UnsupportedVersion, match=r"no share groups; they need Apache Kafka 4\.2, or kohort"):
                await anext(queue.take())


async def test_a_group_of_another_kind_ends_the_worker(server: KohortServer) -> None:
    from kohort.client import lead

    async with lead(server.bootstrap_servers, "taken") as election, queue_of(server, group="taken") as queue:
        await until(lambda: election.generation.generation_id > 0, "the other group is there")
        with pytest.raises(ServerError, match="membership in share group taken: GROUP_ID_NOT_FOUND"):
            await anext(queue.take())
        with pytest.raises(ServerError):
            await queue.put("a")


async def test_several_brokers_and_a_leader_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_session, "LONG_WAIT_MS", 300)  # how long a fetch may wait at the former leader
    with KohortServer(brokers=2, num_partitions=4, **SHARES) as cluster:
        work = Work(lambda job: asyncio.sleep(0.001))
        async with queue_of(cluster, max_deliveries=9) as queue, running(queue.run(work, concurrency=3)):
            await put_all(queue, *map(str, range(20)))
            await work.count(20)
            for partition in range(4):
                cluster.move_partition("jobs", partition, 1)
            await put_all(queue, *map(str, range(20, 40)))
            await until(lambda: len(set(work.done)) == 40, "all are done")
            cluster.move_group("g", 1)
            await put_all(queue, *map(str, range(40, 50)))
            await until(lambda: len(set(work.done)) == 50, "all are done")


async def test_a_queue_belongs_to_one_event_loop(server: KohortServer) -> None:
    queue: WorkQueue = queue_of(server)
    async with queue:
        with pytest.raises(Misuse, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, queue.put("a"))
