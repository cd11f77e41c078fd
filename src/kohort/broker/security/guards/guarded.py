"""Runs a request's guard and its handler, and checks again when the rules have changed while the request waited.

A request that is parked, and one that is answered in steps, may outlive a right. So the guard runs again before the
answer leaves, if the version of the rules is another one. A revoked right ends the wait of a parked request at once
(`denied_now`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from types import GeneratorType
from typing import Any

from kohort.broker.connection import Connection, ParkedRequest
from kohort.broker.request import InShard, InSteps, RequestContext
from kohort.broker.security.authorizer import AclAuthorizer, Rights
from kohort.broker.security.guards.ask import Ask, AuditedAsk, Guard, Narrowed, Refused, Verdict
from kohort.broker.security.guards.table import GUARDS, SHORT
from kohort.broker.state import BrokerState
from kohort.broker.waits.fetch_waits import FetchWait
from kohort.coordinator.events import RequestId

Handler = Callable[[BrokerState, Any, RequestContext], Any]
WAITING = (InShard, FetchWait, InSteps)
"""Results that are no answer yet."""


class Guarded:
    """A request that the guard let pass, as a whole or in part."""

    __slots__ = ("_ask", "_authorizer", "_guard", "_request", "_verdict", "_version")

    def __init__(self, ask: Ask, authorizer: AclAuthorizer, guard: Guard, request: Any, verdict: Verdict) -> None:
        self._ask = ask
        self._authorizer = authorizer
        self._guard = guard
        self._request = request
        self._verdict = verdict
        self._version = authorizer.version

    def concluded(self, result: Any) -> Any:
        """A handler's result, without what is denied now."""
        if isinstance(result, (InShard, FetchWait)):
            return result
        if isinstance(result, InSteps):
            return InSteps(self._in_steps(result.steps))
        verdict = self._present()
        if verdict is None:
            return result
        if isinstance(verdict, Refused):
            return verdict.answer
        return _answer(verdict.finish(result))

    def _in_steps(self, steps: Generator[int | None, None, Any]) -> Generator[int | None, None, Any]:
        result = yield from steps
        return self.concluded(result)

    def denies(self, *, partly: bool) -> bool:
        """Whether the request is denied by the present rules: as a whole, or also in part."""
        verdict = self._present()
        return isinstance(verdict, Refused) or (partly and verdict is not None)

    def _present(self) -> Verdict:
        """The verdict by the present rules."""
        if self._version != self._authorizer.version:
            self._version = self._authorizer.version
            self._verdict = _whole(self._guard(self._ask, self._request))
        return self._verdict


def denied_now(state: BrokerState, parked: Mapping[RequestId, ParkedRequest]) -> list[tuple[RequestId, ParkedRequest]]:
    """The parked requests that are denied since the rules have changed; of fetches also those that are denied in
    part."""
    if state.checked_version == state.rules_version:
        return []
    state.checked_version = state.rules_version
    return [
        (request_id, one)
        for request_id, one in parked.items()
        if one.context.guarded is not None and one.context.guarded.denies(partly=one.shard is None)
    ]


def handle(
    state: BrokerState,
    connection: Connection,
    handler: Handler,
    request: Any,
    context: RequestContext,
) -> Any:
    """The result of a handler, or the refusal."""
    authorizer = state.acl_authorizer
    assert authorizer is not None
    rights = connection.rights
    if rights is None or rights.principal is not connection.principal:
        rights = connection.rights = authorizer.rights(connection.principal, connection.host)
    key, is_audited = context.api_key, state.catalog.tells_details
    short = SHORT.get(key)
    if short is not None and not is_audited and short(state, rights, request, context.api_version):
        result = handler(state, request, context)
        return _kept(state, rights, context, request, result) if isinstance(result, WAITING) else result
    ask = (AuditedAsk if is_audited else Ask)(state, rights, context)
    guard = GUARDS[key]

    def handled(verdict: Any) -> Any:
        if isinstance(verdict, Refused):
            return verdict.answer
        result = handler(state, verdict.request if isinstance(verdict, Narrowed) else request, context)
        if verdict is None and not isinstance(result, WAITING):
            return result
        guarded = context.guarded = Guarded(ask, authorizer, guard, request, verdict)
        return guarded.concluded(result)

    verdict = guard(ask, request)
    if isinstance(verdict, GeneratorType):
        try:
            size = next(verdict)
        except StopIteration as done:
            return handled(done.value)
        return InSteps(_decided_in_steps(size, verdict, handled))
    return handled(verdict)


def _kept(state: BrokerState, rights: Rights, context: RequestContext, request: Any, result: Any) -> Any:
    """The result of a request that was allowed without its guard, and waits."""
    assert state.acl_authorizer is not None
    guard = GUARDS[context.api_key]
    guarded = context.guarded = Guarded(Ask(state, rights, context), state.acl_authorizer, guard, request, None)
    return guarded.concluded(result)


def _decided_in_steps(
    size: int, steps: Generator[int, None, Verdict], handled: Callable[[Verdict], Any]
) -> Generator[int | None, None, Any]:
    """`size` is that of the first step, which is done."""
    yield size
    return handled((yield from steps))


def _answer(finished: Any) -> Any:
    return InSteps(finished) if isinstance(finished, GeneratorType) else finished


def _whole(verdict: Any) -> Verdict:
    """The verdict without steps."""
    if isinstance(verdict, GeneratorType):
        try:
            while True:
                next(verdict)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
    return verdict  # type: ignore[no-any-return]
