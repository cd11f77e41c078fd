"""Requests for the controller, of nodes that serve at once; and requests that such nodes do not serve yet.

Only the controller writes the metadata log. Elsewhere a request that would change it is passed on (asks.py), or
answered with NOT_CONTROLLER: then clients ask the controller, which Metadata names. A request in steps may lose the
controller's slot between two of them: then it is answered in the same way, and what it has done stays done.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kohort.broker.apis import OF_SHARE_GROUPS, OF_TRANSACTIONS, Api
from kohort.broker.connection import Connection
from kohort.broker.error_answers import error_answer
from kohort.broker.request import InSteps, RequestContext
from kohort.broker.security.guards.guarded import handle
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode

OF_CONTROLLER = frozenset((19, 20, 30, 31, 33, 37, 44, 49, 51))
"""The keys of the APIs that change topics, configs, ACLs, quotas and users."""
UNSERVED = OF_TRANSACTIONS | OF_SHARE_GROUPS
"""The keys of the APIs that need several nodes at once."""


def handled(state: BrokerState, connection: Connection, api: Api, request: Any, context: RequestContext) -> Any:
    """The result of a request, as a handler's."""
    if state.slots is not None:
        if api.key in UNSERVED:
            return error_answer(api, request, context.api_version, ErrorCode.UNSUPPORTED_VERSION)
        if api.key in OF_CONTROLLER and not state.topics.may_decide:
            otherwise = error_answer(api, request, context.api_version, ErrorCode.NOT_CONTROLLER)
            is_flexible = context.api_version >= api.flexible_from
            return state.slots.asks.ask(request, context, otherwise, is_flexible=is_flexible) or otherwise
    if state.acl_authorizer is None:
        result = api.handler(state, request, context)
    else:
        result = handle(state, connection, api.handler, request, context)
    if state.slots is not None and api.key in OF_CONTROLLER and isinstance(result, InSteps):
        otherwise = error_answer(api, request, context.api_version, ErrorCode.NOT_CONTROLLER)
        return InSteps(_as_controller(state, result.steps, otherwise))
    return result


def _as_controller(state: BrokerState, steps: Generator[Any, None, Any], otherwise: Any) -> Generator[Any, None, Any]:
    while state.topics.may_decide:
        try:
            grown = next(steps)
        except StopIteration as done:
            return done.value
        yield grown
    steps.close()
    return otherwise
