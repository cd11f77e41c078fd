"""What a worker of a queue does with jobs, on an event loop: which one is next, what becomes of each.

Jobs that were fetched wait in a backlog for a slot. A job that is handed out occupies its slot until it has an outcome.
One that waits for its retry occupies none: its record stays locked, is renewed, and is given back when the pause is
over.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from math import ceil, inf
from typing import Any

from kohort.client.backoff import Backoff
from kohort.client.errors import KafkaError, LockLost, Misuse, error_code
from kohort.client.queue.acquired import AcquiredRecord
from kohort.client.queue.backlog import Backlog
from kohort.client.queue.broker_session import BrokerSession, Held, Wanted
from kohort.client.queue.dead_letters import dead_letter
from kohort.client.queue.delays import DELIVERIES, delayed_again, deliveries_in
from kohort.client.queue.job import Job
from kohort.client.queue.options import Settings
from kohort.client.queue.puts import Puts
from kohort.client.queue.share_member import Member
from kohort.client.queue.share_session import ACCEPT, REJECT, RELEASE, Place

MOST_REMEMBERED = 10_000
"""How many outcomes that could not be stored are kept, to be stored if their jobs are delivered again."""
UNCONFIRMED = "the lock had ended: the job may be delivered again"

log = logging.getLogger("kohort.client")


class Worker:
    """Belongs to the event loop in which it is made. Jobs and sessions call it."""

    def __init__(self, settings: Settings, puts: Puts) -> None:
        self.member: Member | None = None
        self.concurrency = 0
        self.permits: Callable[[], int] | None = None
        """How many jobs the group lets this worker work on; None: any number."""
        self.job_ended: Callable[[], None] | None = None
        """Called when the work on a job has ended."""
        self.failure: Exception | None = None
        self.open: set[Job] = set()
        """Handed out, without an outcome."""
        self._settings = settings
        self._options = settings.options
        self._puts = puts
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(self._options["retry_backoff"], self._options["retry_backoff_max"])
        self._backlog: Backlog[Job] = Backlog(self._options["key_concurrency"])
        self._jobs: dict[tuple[Place, int], Job] = {}
        """Jobs without an outcome, including those that wait for their retry."""
        self._waiting: dict[Job, asyncio.TimerHandle] = {}
        """Jobs that wait for their retry. A job is given back when its timer fires."""
        self._remembered: OrderedDict[tuple[Place, int], int] = OrderedDict()
        """Outcomes that could not be stored."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        """Calls that wait for a job."""
        self._idle = asyncio.Event()
        """Set when no job is worked on."""
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def group_id(self) -> str:
        return self._settings.group_id

    @property
    def waiting(self) -> int:
        """How many jobs wait: for their retry, for another job of their key, for a slot."""
        return len(self._waiting) + len(self._backlog)

    def reset(self) -> None:
        """Another number of slots, or permits."""
        self._wake()

    # -- which job is next

    async def next(self) -> Job | None:
        """The next job when there is one and a slot for it. None when the worker is closed."""
        while True:
            if self.failure is not None:
                raise self.failure
            if self._closing:
                return None
            if (job := self._pop()) is not None:
                return job
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._changed()
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake()  # the job that woke this call is free for another call
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def close(self) -> None:
        """Give back what waits, at once; let jobs at work end, and give back those that do not. Leave the group."""
        self._closing = True
        self._wake_all()
        for job in [*self._waiting, *self._backlog.drain()]:
            timer = self._waiting.pop(job, None)
            if timer is not None:
                timer.cancel()
            self._jobs.pop(_place(job), None)
            self._spawn(self._settle_quietly(job, RELEASE))
        try:
            async with asyncio.timeout(self._options["close_timeout"]):
                await self._idle.wait()
        except TimeoutError:
            log.warning("group %s: %d jobs are given back while they are worked on", self.group_id, len(self.open))
            for job in list(self.open):
                self._spawn(self._settle_quietly(job, RELEASE))
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        if self.member is not None:
            await self.member.close()

    # -- the outcomes of jobs

    async def finish(self, job: Job, kind: int) -> None:
        """As Job.ack and Job.release."""
        self._conclude(job)
        await self._settle(job, kind)

    async def postpone(self, job: Job, after: float | None, reason: str) -> None:
        """As Job.retry."""
        if job.deliveries >= self._options["max_deliveries"]:
            await self.reject(job, reason)
            return
        pause = self._backoff.pause(job.deliveries, random.random()) if after is None else max(after, 0.0)
        self._conclude(job)
        if not self._is_valid(job):
            raise self._lost_error(job)
        if pause == 0 or self._closing:
            await self._settle(job, RELEASE)
            return
        if self._options["delay_topic"] is not None and pause > job.held.session.lock_s:
            try:
                await self._puts.put(self._options["delay_topic"], delayed_again(job, pause), 0)
            except KafkaError as error:
                log.warning("%r waits here instead of in the delay topic: %s", job, error)
            except BaseException:
                self._spawn(self._settle_quietly(job, RELEASE))
                raise
            else:
                await self._settle(job, ACCEPT)
                return
        self._wait(job, pause, self._again)

    async def reject(self, job: Job, reason: str) -> None:
        """As Job.reject."""
        self._check_open(job)
        topic = self._options["dead_letter"]
        if topic is None:
            log.error("%r is dropped after delivery %d: %s", job, job.deliveries, reason or "it was rejected")
        else:
            job.held.extended_until = inf
            record = dead_letter(job, self.group_id, reason)
            try:
                place = await self._puts.put(topic, record)
            except KafkaError:
                self._conclude(job)
                self._wait(job, self._backoff.longest, lambda job: self._reject_again(job, reason))
                raise
            except BaseException:
                self._conclude(job)
                self._spawn(self._settle_quietly(job, RELEASE))
                raise
            log.warning("%r is a dead letter in %s-%d: %s", job, *place, reason or "it was rejected")
        self._conclude(job)
        await self._settle(job, REJECT)

    async def extend(self, job: Job) -> None:
        """As Job.extend."""
        self._check_open(job)
        held = job.held
        error = await held.session.extend(held) if self._is_valid(job) else -1
        if error:
            raise self._lost_error(job, error)

    def _wait(self, job: Job, pause: float, then: Callable[[Job], None]) -> None:
        """Keep the lock of a job whose work has ended for so many seconds; then do this."""
        if self._closing:
            self._spawn(self._settle_quietly(job, RELEASE))
            return
        job.held.extended_until = inf
        self._jobs[_place(job)] = job
        self._waiting[job] = self._loop.call_later(pause, then, job)

    def _reject_again(self, job: Job, reason: str) -> None:
        del self._waiting[job]
        job.is_open = True
        self._spawn(self._reject_quietly(job, reason))

    async def _reject_quietly(self, job: Job, reason: str) -> None:
        try:
            await self.reject(job, reason)
        except KafkaError as error:
            log.warning("%r: %s", job, error)

    def _check_open(self, job: Job) -> None:
        if not job.is_open:
            raise Misuse(f"{job!r} has an outcome already")

    def _conclude(self, job: Job) -> None:
        """The work on the job has ended: its slot is free."""
        self._check_open(job)
        job.is_open = False
        if self._jobs.get(_place(job)) is job:
            del self._jobs[_place(job)]
        if job in self.open:
            self.open.discard(job)
            self._backlog.ended(job)
            if not self.open:
                self._idle.set()
            if self.job_ended is not None:
                self.job_ended()
        self._wake()

    async def _settle(self, job: Job, kind: int) -> None:
        held = job.held
        if not self._is_valid(job):
            self._remember(job, kind)
            raise self._lost_error(job)
        error = await held.session.settle(held, kind)
        if error:
            self._remember(job, kind)
            raise self._lost_error(job, error)

    async def _settle_quietly(self, job: Job, kind: int) -> None:
        try:
            await self._settle(job, kind)
        except LockLost as lost:
            log.info("%s", lost)

    def _remember(self, job: Job, kind: int) -> None:
        if kind != RELEASE:
            self._remembered[_place(job)] = kind
            if len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)

    def _lost_error(self, job: Job, error: int = -1) -> LockLost:
        code = error_code(error) if error > 0 else None
        return LockLost(code, f"{job!r}: {UNCONFIRMED}" + (f" ({code.name})" if code is not None else ""))

    def _is_valid(self, job: Job) -> bool:
        return job.held.is_valid(self._loop.time())

    def _again(self, job: Job) -> None:
        """The pause before the job's retry is over."""
        del self._waiting[job]
        self._jobs.pop(_place(job), None)
        self._spawn(self._settle_quietly(job, RELEASE))

    # -- what the sessions call

    def wanted(self, session: BrokerSession) -> Wanted:
        """What the session's next fetch asks for."""
        sessions = [] if self.member is None else self.member.sessions
        waiting = len(self._waiting) + self._backlog.blocked
        if not self._waiters or not sessions or self._closing or waiting >= self._options["max_waiting"]:
            return Wanted((), 0)
        free = self._capacity() - len(self.open) - self._backlog.ready
        most = ceil(free / len(sessions)) if free > 0 else 0
        if len(self._settings.weights) == 1:
            return Wanted(session.places, most)
        topics = {self.name_of(place) for place in session.places}
        topic = session.turns.next(topics) if most else None
        if topic is None:
            return Wanted(session.places, most)
        return Wanted([place for place in session.places if self.name_of(place) == topic], most, topic)

    def acquired(self, session: BrokerSession, place: Place, records: Sequence[AcquiredRecord]) -> None:
        """The session has locked records."""
        for record, _ in records:
            held = session.held[place, record.offset]
            former = self._jobs.get((place, record.offset))
            if former is not None and self._loop.time() < former.held.extended_until:
                former.held = held  # the work on it goes on with this lock
                continue
            kind = self._remembered.pop((place, record.offset), None)
            topic = self.name_of(place)
            earlier = deliveries_in(record.headers)
            headers = record.headers
            if earlier:
                headers = tuple(header for header in headers if header[0] != DELIVERIES)
            job = Job(self, held, topic, record.key, record.value, headers, record.timestamp, earlier)
            if kind is not None:
                job.is_open = False
                self._spawn(self._settle_quietly(job, kind))
                continue
            if self._closing:
                continue  # the end of the session gives it back
            self._jobs[place, record.offset] = job
            if job.deliveries > self._options["max_deliveries"] and self._options["dead_letter"] is not None:
                # The worker that had it last has died.
                self._spawn(self._reject_quietly(job, f"{job.deliveries - 1} deliveries had no outcome"))
            else:
                self._backlog.add(job)
        self._wake()

    def fetched(self, session: BrokerSession, asked: Wanted, count: int) -> None:
        """The answer to a fetch."""
        session.turns.fetched(asked.topic, count)

    def lost(self, held: Held) -> None:
        """A lock has ended without an outcome."""
        key = held.place, held.offset
        job = self._jobs.get(key)
        if job is None or job.held is not held:
            return
        timer = self._waiting.pop(job, None)
        if timer is not None:
            timer.cancel()
            del self._jobs[key]
        elif job not in self.open:
            if self._backlog.remove(job):
                del self._jobs[key]
        else:
            log.info("%r", job)

    def leaders_changed(self) -> None:
        if self.member is not None:
            self.member.leaders_changed()

    def failed(self, error: Exception) -> None:
        """The worker cannot go on."""
        if self.failure is None and not self._closing:
            self.failure = error
            self._wake_all()

    def extension_of(self, now: float) -> float:
        """Until when the lock of a job that comes now is extended."""
        limit = self._options["time_limit"]
        return inf if limit is None else now + limit

    def name_of(self, place: Place) -> str:
        return place[0].hex() if self.member is None else self.member.name_of(place)

    # -- inside

    def _capacity(self) -> int:
        return self.concurrency if self.permits is None else min(self.concurrency, self.permits())

    def _pop(self) -> Job | None:
        if len(self.open) >= self._capacity():
            return None
        job = self._backlog.pop()
        if job is not None:
            self.open.add(job)
            self._idle.clear()
        return job

    def _wake(self) -> None:
        """Wake as many calls as there are jobs and slots for them, and let the sessions look for more to do."""
        count = min(self._backlog.ready, self._capacity() - len(self.open))
        for waiter in self._waiters:
            if count <= 0:
                break
            if not waiter.done():
                waiter.set_result(None)
            count -= 1
        self._changed()

    def _wake_all(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _changed(self) -> None:
        if self.member is not None:
            self.member.changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _place(job: Job) -> tuple[Place, int]:
    return job.held.place, job.held.offset
