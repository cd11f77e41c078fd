"""Leader election for programs with threads: `lead` without asyncio.

    def report(term):
        while not term.wait_ended(60_000):           # sleeps a minute; True as soon as the term is over
            write_report(term.token)

    with blocking_lead("localhost:9092", "nightly-report") as election:
        for term in election:                        # each time that this process is elected
            term.run(report)                         # in this thread

An `Election` lives in a thread of the library's (`client/coordination/blocking_member.py`), so elections, leases and
tokens are the same. One thing differs: a thread cannot be cancelled. The work learns by `term.valid` or
`term.wait_ended` that its term is over; a system that compares tokens refuses what the work does later. Nothing checks
that the work makes progress: the heartbeats go on while it hangs.

A scheduler needs no loop over terms. It starts the election, and each job checks whether this process leads:

    election = blocking_lead("localhost:9092", "nightly-report")
    election.start()

    def job():
        if (term := election.term) is not None:
            write_report(term.token)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, overload

from kohort.client.coordination.blocking_member import BlockingMember
from kohort.client.coordination.callbacks import SESSION_TIMEOUT_MS, check_settings
from kohort.client.coordination.election import AnyToken, Election, Term
from kohort.client.coordination.tokens import GroupToken, LastingToken
from kohort.client.errors import Closed, Misuse

log = logging.getLogger("kohort.client")


class BlockingTerm(Generic[AnyToken]):
    """A period during which this process leads. May be used in any thread."""

    def __init__(self, election: BlockingElection[AnyToken], inner: Term[AnyToken]) -> None:
        self.token = inner.token
        """The fencing token, larger than that of every earlier term; its type says how far that goes."""
        self._election = election
        self._inner = inner

    def __repr__(self) -> str:
        return f"<blocking {repr(self._inner)[1:]}"

    @property
    def valid(self) -> bool:
        """Whether this process leads at this instant, by the clock. Check it before each effect."""
        return self._inner.valid

    def wait_ended(self, timeout_ms: int | None = None) -> bool:
        """Wait for the end of the term: True as soon as it is over, False if it lasts after `timeout_ms`."""
        return self._inner.wait_ended(timeout_ms)

    def run(self, work: Callable[[BlockingTerm[AnyToken]], Any], *, keep_term: bool = False) -> bool:
        """Run `work(term)` in this thread, then resign. True if the term lasted until the work had ended.

        If the term is over, the work is not started. Raises what `work` raises. `keep_term`: do not resign, because
        this process has more to do in the same term.
        """
        if not self.valid:
            return False
        try:
            result = work(self)
            if inspect.iscoroutine(result):
                result.close()
                raise Misuse("run: the work is a coroutine function: those are for `lead`")
            return self.valid
        finally:
            if not keep_term:
                self.resign()

    def resign(self) -> None:
        """End the term: another candidate is elected at once, or this one again if it is the only one. Call it when
        the work has ended. Does nothing if the term is over."""

        async def resign() -> None:
            self._inner.resign()

        with suppress(Closed):
            self._election._do("resign", resign)


class BlockingElection(BlockingMember[Election[AnyToken]], Generic[AnyToken]):
    """One candidate; made by `blocking_lead`."""

    def __init__(self, inner: Election[AnyToken]) -> None:
        super().__init__(inner)
        self._wrapping = threading.Lock()
        self._last: BlockingTerm[AnyToken] | None = None
        self._asking = 0
        """How many calls of `next_term` wait now."""

    @property
    def leader_id(self) -> str:
        """The member id of the leader, as far as this candidate knows."""
        return self._inner.leader_id

    @property
    def term(self) -> BlockingTerm[AnyToken] | None:
        """The term of this process; None while it does not lead."""
        term = self._inner.term
        return None if term is None else self._wrapped(term)

    @property
    def failure(self) -> BaseException | None:
        """The error that ended this candidacy; None while it lasts. It is logged if no call waits for a term."""
        return self._inner.failure

    def next_term(self, timeout_ms: int | None = None) -> BlockingTerm[AnyToken] | None:
        """Wait for a term of this process that was not given before; None if there is none for `timeout_ms`. Raises
        the error that ended the candidacy; Closed."""

        async def next_term() -> Term[AnyToken] | None:
            self._asking += 1
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    return await self._inner.next_term()
            except TimeoutError:
                return None
            finally:
                self._asking -= 1

        term = self._do("next_term", next_term)
        return None if term is None else self._wrapped(term)

    def __iter__(self) -> Iterator[BlockingTerm[AnyToken]]:
        while True:
            if (term := self.next_term()) is not None:
                yield term

    def _wrapped(self, term: Term[AnyToken]) -> BlockingTerm[AnyToken]:
        with self._wrapping:
            if self._last is None or self._last._inner is not term:
                self._last = BlockingTerm(self, term)
            return self._last

    async def _begin(self) -> None:
        await self._inner.__aenter__()
        assert self._inner._task is not None
        self._inner._task.add_done_callback(self._stopped)

    def _stopped(self, _: object) -> None:
        failure = self._inner.failure
        if failure is not None and not self._asking:  # else `next_term` raises it
            log.error("group %s: this process is no candidate any more: %s", self.group_id, failure)

    async def _leave(self) -> None:
        await self._inner.__aexit__()


@overload
def blocking_lead(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    *,
    token_topic: str,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> BlockingElection[LastingToken]: ...


@overload
def blocking_lead(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    *,
    token_topic: None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> BlockingElection[LastingToken | GroupToken]: ...


def blocking_lead(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    *,
    token_topic: str | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> BlockingElection[Any]:
    """A candidate for the leadership of a group, for programs with threads; use it in `with`, or with `start` and
    `close`. The settings and errors are those of `lead`."""
    check_settings("blocking_lead", settings, ("token_topic",))
    return BlockingElection(
        Election(
            bootstrap_servers, group_id, token_topic=token_topic, session_timeout_ms=session_timeout_ms, **settings
        )
    )
