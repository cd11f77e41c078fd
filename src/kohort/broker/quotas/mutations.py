"""The quota of changes: each partition that is created or deleted takes a token (KIP-599).

From some version on, an API refuses with 89 what comes when no token is left. Below it, everything is done and the
client waits. Source: ControllerMutationQuotaManager, StrictControllerMutationQuota, PermissiveControllerMutationQuota.
"""

from __future__ import annotations

from kohort.broker.handlers.config_resources import Refused
from kohort.broker.quotas.entities import MUTATION, Found
from kohort.broker.quotas.meters import LONGEST_MS
from kohort.broker.request import RequestContext
from kohort.broker.state import BrokerState
from kohort.wire.errors import ErrorCode


class Mutations:
    """The changes of one request."""

    __slots__ = ("_context", "_found", "_is_strict", "_state")

    def __init__(self, state: BrokerState, context: RequestContext, found: Found, *, is_strict: bool) -> None:
        self._state = state
        self._context = context
        self._found = found
        self._is_strict = is_strict

    def is_used_up(self, partitions: int) -> bool:
        """False, and tokens are taken, if any is left. The client does not wait: for topics that Metadata creates."""
        now, bound = self._state.now, self._found.bound
        bucket = self._state.meters.bucket(MUTATION, self._context.broker_id, self._found)
        if bucket.tokens(bound, now) < 0:
            return True
        bucket.take(partitions, bound, now)
        return False

    def take(self, partitions: int) -> None:
        """Raises Refused (89) if the quota is strict and no token is left. What is taken may be more than is there."""
        now, bound, context = self._state.now, self._found.bound, self._context
        bucket = self._state.meters.bucket(MUTATION, context.broker_id, self._found)
        delay = bucket.delay_ms(bound, now)
        if delay and self._is_strict:
            context.throttle_ms = max(context.throttle_ms, min(delay, LONGEST_MS))
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        bucket.take(partitions, bound, now)
        if not self._is_strict:
            context.throttle_ms = max(context.throttle_ms, min(bucket.delay_ms(bound, now), LONGEST_MS))


def mutations_of(state: BrokerState, context: RequestContext, strict_from: int) -> Mutations | None:
    """None if no quota is about the client's changes."""
    quotas = state.catalog.quotas
    if not quotas.on:
        return None
    found = quotas.find(MUTATION, context.principal.name, context.client.client_id)
    if found is None:
        return None
    return Mutations(state, context, found, is_strict=context.api_version >= strict_from)
