"""Rules about settings that all members of groups share: a heartbeat interval that follows from the session, and an
error for an unknown name that suggests the right one.
"""

from __future__ import annotations

from collections.abc import Iterable

HEARTBEAT_INTERVAL_MS = 3_000
"""Kafka's default."""


def heartbeat_interval(given_ms: int | None, session_timeout_ms: int) -> int:
    """The given interval; else Kafka's default, or a third of the session if that is less. Raises ValueError."""
    interval = min(HEARTBEAT_INTERVAL_MS, session_timeout_ms // 3) if given_ms is None else given_ms
    if not 0 < interval < session_timeout_ms:
        raise ValueError(
            f"heartbeat_interval_ms is {interval} and session_timeout_ms is {session_timeout_ms}: "
            "the interval must be above 0 and below the session"
        )
    return interval


def refuse_unknown(call: str, given: Iterable[str], known: Iterable[str], otherwise: str = "") -> None:
    """Raise TypeError if a given name is not known. `otherwise` replaces the list of names in the hint."""
    from difflib import get_close_matches  # rarely needed

    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else otherwise or f"it takes {', '.join(names)}"
            raise TypeError(f"{call}: unknown setting {name}; {hint}")
