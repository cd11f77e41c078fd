"""The audit: a line in the server's log for each change that a client makes, with what was before, who made it, and
from where.

A line leaves when its turn is durable. As clients cause these lines, their number is limited (server/log.py). No secret
is in them, and no control character. The members of groups, offsets that are set from outside of a group, and
transactions that time out, have lines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kohort.broker.request import RequestContext
from kohort.broker.security.audit import printable
from kohort.broker.state import BrokerState

HIDDEN = "(hidden)"


def tell_change(state: BrokerState, context: RequestContext, what: str, **values: str | int) -> None:
    """`what` was changed by this request; empty values are left out."""
    client = context.client
    shown = {key: printable(value) if isinstance(value, str) else value for key, value in values.items()}
    state.turn.tell(
        what,
        **shown,
        by_principal=printable(str(context.principal)),
        by_client_id=printable(client.client_id),
        by_host=client.host,
    )


def difference(
    before: Mapping[str, Any], after: Mapping[str, Any], hides: Callable[[str], bool] = lambda name: False
) -> str:
    """`retention.ms: 7 -> 8, cleanup.policy: none -> compact`: what the two have differently."""
    return ", ".join(
        f"{name}: {_value(before, name, hides)} -> {_value(after, name, hides)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def _value(values: Mapping[str, Any], name: str, hides: Callable[[str], bool]) -> str:
    if name not in values:
        return "none"
    value = values[name]
    if hides(name):
        return HIDDEN
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
