"""One leader at a time, among all candidates.

    async with lead("localhost:9092", "nightly-report") as election:
        async for term in election:              # each time that this process is elected
            await term.run(report)               # `report(term)`, cancelled the moment that the term ends

All candidates are members of one group. The group's own leader, which computes the assignment, elects one of them: the
candidate that leads already, if there is one. So candidates come and go without a change of leadership.

A term ends when its work has ended, so that another candidate leads; when this process leaves; when another candidate
is elected; and when the *lease* ends. The lease is the session, counted from when the last accepted heartbeat was sent.
The coordinator counts from later, so the term is over here before another candidate can be elected. A member that waits
for the others in a rebalance sends no heartbeats, so a rebalance that takes longer than the session ends the term. A
member that does not join a rebalance is removed after the rebalance timeout, which is twice the session, and its lease
ends then.

A candidate that has resigned is elected again only if no other candidate is there, and not sooner than PAUSE_S later.

A clock does not stop a process: it may be suspended between a check of the clock and the write that follows. For this
there is `term.token`. Every later term of the group has a larger token. A system that receives the leader's writes
can therefore refuse a token that is smaller than the largest token so far. How far that order goes depends on the
token's type (`client/coordination/tokens.py`):

    lead(servers, group)                            on kohort a LastingToken, elsewhere a GroupToken
    lead(servers, group, token_topic="tokens")      a LastingToken everywhere

The token is the group's generation in which the term began. kohort never uses a generation twice, not after a crash and
not when the group is deleted. Apache Kafka counts from the start again in a group that was deleted or has expired. With
a token topic, terms on such clusters are numbered in that topic (`client/coordination/token_topic.py`), which needs
transactions and some more round trips.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, cast, overload

from kohort.client.cluster import Cluster
from kohort.client.coordination.callbacks import SESSION_TIMEOUT_MS, JoinedMember, check_settings
from kohort.client.coordination.coordinator import Coordinator
from kohort.client.coordination.lease import Leased, LeaseWatch, outlast, started
from kohort.client.coordination.token_topic import Overtaken
from kohort.client.coordination.tokens import GroupToken, LastingToken, Token, of_generation
from kohort.client.errors import Closed, KafkaError, Misuse
from kohort.wire.embedded import ELECTION_PROTOCOL

NO_CLAIM = -1
RESIGNED = -2
"""A candidate that has resigned claims this number less the token of its term: any other is elected before it."""
PROTOCOL = "one-leader"

API_TIMEOUT_MS = 60_000
"""How long an elected candidate tries to get its token from the topic before it leads."""

PAUSE_S = 0.5
"""How long the only candidate waits between its resignation and its next term; at most a quarter of the session."""

AnyToken = TypeVar("AnyToken", bound=Token, covariant=True)

log = logging.getLogger("kohort.client")


class Term(Leased, Generic[AnyToken]):
    """A period during which this process leads. Belongs to the event loop of its election."""

    def __init__(self, election: Election[AnyToken], token: AnyToken) -> None:
        super().__init__(election)
        self.token = token
        """The fencing token, larger than that of every earlier term; its type says how far that goes."""
        self._election = election

    def __repr__(self) -> str:
        return f"<term of {self._election.group_id!r}, token {self.token}{'' if self.valid else ', over'}>"

    async def run(self, work: TermWork[AnyToken], *, keep_term: bool = False) -> bool:
        """Run `work` while the term lasts, then resign. True if the work finished, False if it was cancelled because
        the term ended.

        `work` is a coroutine, or a function that returns a coroutine for the term: `run(report)` runs `report(term)`.
        If the term is over, the work is not started. Raises what `work` raises. Returns only after `work` has stopped;
        what `work` does after its cancellation may happen outside the term. `keep_term`: do not resign, because this
        process has more to do in the same term.
        """
        if not self.valid:
            if inspect.iscoroutine(work):
                work.close()
            return False
        try:
            return await self._carry_out(started(work, self))
        finally:
            if not keep_term:
                self.resign()

    def resign(self) -> None:
        """End the term: another candidate is elected at once, or this one again if it is the only one. Call it when
        the work has ended. Does nothing if the term is over."""
        if not self._over.is_set():
            self._election._resign()

    async def _carry_out(self, work: Coroutine[Any, Any, Any]) -> bool:
        working = asyncio.create_task(work)
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait((working, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            finished = working.done()
            working.cancel()
            await outlast(working)
        if finished or not working.cancelled():
            working.result()
        return finished


TermWork = Coroutine[Any, Any, Any] | Callable[[Term[AnyToken]], Awaitable[Any]]


class Election(Coordinator, Generic[AnyToken]):
    """One candidate; made by `lead`."""

    protocol_type = ELECTION_PROTOCOL

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        *,
        token_topic: str | None,
        session_timeout_ms: int,
        **settings: Any,
    ) -> None:
        settings |= {"session_timeout_ms": session_timeout_ms, "rebalance_timeout_ms": 2 * session_timeout_ms}
        super().__init__(bootstrap_servers, group_id, **settings)
        self.leader_id = ""
        """The member id of the leader, as far as this candidate knows."""
        self._bootstrap_servers = bootstrap_servers
        self._token_topic = token_topic
        self._term: Term[AnyToken] | None = None
        self._given: Term[AnyToken] | None = None
        """The last term that the application got."""
        self._resigned: int | None = None
        """The token of the term that this candidate has resigned from, until it learns that it or another one leads."""
        self._claim = NO_CLAIM
        """The claim of the last round."""
        self._change = asyncio.Event()
        self._lease = LeaseWatch(self, self._end, "the leader's lease was over")
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        term, task = self.term, self._task
        if self._closed:
            state = "closed"
        elif task is None:
            state = "not begun"
        elif term is not None:
            state = f"leads with token {term.token}"
        elif task.done():
            state = "failed"
        else:
            state = f"led by {self.leader_id!r}" if self.leader_id else "without a leader"
        return f"<election of {self.group_id!r}, {state}>"

    # -- for the application

    @property
    def failure(self) -> BaseException | None:
        """The error that ended this candidacy; None while it lasts."""
        task = self._task
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    @property
    def term(self) -> Term[AnyToken] | None:
        """The term of this process; None while it does not lead."""
        return self._term if self._term is not None and self._term.valid else None

    async def next_term(self) -> Term[AnyToken]:
        """Wait for a term of this process that was not given before; raises the error that ended the candidacy, and
        Closed after the election is left."""
        while (term := self.term) is None or term is self._given:
            if self._task is None:
                raise Misuse("an election is used inside `async with`")
            if self._task.cancelled():
                raise Closed(f"group {self.group_id}: the election is over")
            if self._task.done():
                self._task.result()
            self._change.clear()
            await self._change.wait()
        self._given = term
        return term

    async def __aiter__(self) -> AsyncIterator[Term[AnyToken]]:
        while True:
            yield await self.next_term()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._task = asyncio.create_task(self._take_part())
        self._task.add_done_callback(lambda _: self._end())
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await super().__aexit__(*raised)

    # -- the group

    def metadata(self) -> Mapping[str, bytes]:
        if (term := self.term) is not None:
            self._claim = int(term.token)
        else:
            self._claim = NO_CLAIM if self._resigned is None else RESIGNED - self._resigned
        return {PROTOCOL: self._claim.to_bytes(8, "big", signed=True)}

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        return elect({member.member_id: member.metadata for member in members})

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        self.leader_id = assignment.decode()
        if self.leader_id != member_id:
            self._resigned = None
            self._end()
        elif self.term is None and (self._resigned is None or self._claim <= RESIGNED):  # else the next round counts
            self._end()
            if self._resigned is not None:
                await asyncio.sleep(min(PAUSE_S, self._settings.session_timeout_ms / 4000))
            try:
                token = await self._token(generation)
            except KafkaError as error:
                if not error.retriable and not isinstance(error, Overtaken):
                    raise
                log.warning("group %s: no token for this term: %s", self.group_id, error)
                self.request_rejoin("the leader got no token")
            else:
                if self.generation.generation_id != generation:
                    return  # lost meanwhile
                self._resigned = None
                self._term = Term(self, token)
                self._lease.begin()
                self._change.set()

    async def _token(self, generation: int) -> AnyToken:
        if self.lasting_generations or self._token_topic is None:
            token = of_generation(generation, self.lasting_generations)
        else:
            token = LastingToken(await asyncio.to_thread(self._next_token, self._token_topic))
        return cast(AnyToken, token)  # the overloads of `lead` say which

    def _next_token(self, topic: str) -> int:
        settings = self._settings
        with Cluster(
            self._bootstrap_servers,
            request_timeout_ms=settings.request_timeout_ms,
            api_timeout_ms=API_TIMEOUT_MS,
            security=self._security,
        ) as cluster:
            return cluster.next_token(topic, self.group_id)

    def on_lost(self, generation: int, member_id: str, reason: str) -> None:
        self._end()

    def on_leave_prepare(self) -> None:
        self._end()

    def _resign(self) -> None:
        if self._term is not None:
            self._resigned = int(self._term.token)
        self._end()
        if not self._closed:
            self.request_rejoin("the leader has resigned")

    def _end(self) -> None:
        term, self._term = self._term, None
        self._lease.end()
        if term is not None:
            term._end()
        self._change.set()


def elect(metadata: Mapping[str, bytes]) -> dict[str, bytes]:
    """Elect the member that claims the latest term, else the first that has not just resigned, else the one whose
    resignation is the oldest: a candidate may not have learned yet who followed it. Every member gets the id of the
    elected."""
    claims = {member_id: int.from_bytes(claim[:8], "big", signed=True) for member_id, claim in metadata.items()}
    elected = max(claims, key=claims.__getitem__)
    return dict.fromkeys(claims, elected.encode())


@overload
def lead(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    *,
    token_topic: str,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> Election[LastingToken]: ...


@overload
def lead(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    *,
    token_topic: None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> Election[LastingToken | GroupToken]: ...


def lead(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    *,
    token_topic: str | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> Election[Any]:
    """A candidate for the leadership of a group; use it in `async with`.

    A leader that dies is replaced after `session_timeout_ms`, a leader that leaves at once. `token_topic` numbers the
    terms on clusters whose generations may restart at 1: the same topic for all candidates, for nothing else; it is
    created if it is missing. `settings` are those of `Coordinator`, except for `rebalance_timeout_ms`, which follows
    from the session, and `group_instance_id`, because the successor of a static member would lead at once with the same
    token. Raises ValueError, TypeError.
    """
    check_settings("lead", settings, ("token_topic",))
    return Election(
        bootstrap_servers, group_id, token_topic=token_topic, session_timeout_ms=session_timeout_ms, **settings
    )
