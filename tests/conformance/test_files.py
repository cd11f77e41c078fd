"""Which files can be played to a broker with these settings."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kohort.conformance.run import Kit
from kohort.conformance.target import Target


class Told:
    """A broker that tells its settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def is_free(self, group: str) -> bool:
        return True


def kit(**settings: str) -> Kit:
    return Kit(cast(Target, Told({name.replace("_", "."): value for name, value in settings.items()})), quick=True)


def reasons(found: Kit) -> dict[str, str]:
    return {play.file: play.why for play in found.not_played}


@pytest.mark.parametrize(
    ("settings", "played", "not_played", "why"),
    [
        ({}, "join_refused", "group_full", "it needs group.max.size=2, and the broker has 2147483647"),
        ({"group_max_size": "2"}, "group_full", "join_protocols", "it needs group.max.size=10 or more, and"),
        # Other limits of sessions matter only for sessions beyond them.
        ({"group_max_session_timeout_ms": "300000"}, "join_protocols", "join_refused", "session.timeout.ms=1800000"),
        ({"group_min_session_timeout_ms": "1"}, "join_protocols", "join_refused", "session.timeout.ms=6000"),
    ],
)
def test_settings(settings: dict[str, Any], played: str, not_played: str, why: str) -> None:
    found = kit(**settings)
    assert played in {file.name for file in found.files}, reasons(found)[played]
    assert why in reasons(found)[not_played]


def test_the_reason_is_a_setting_of_the_nearest_speed() -> None:
    fast = {"group_initial_rebalance_delay_ms": "1000", "group_min_session_timeout_ms": "2000"}
    why = reasons(kit(**fast, group_max_session_timeout_ms="1000"))["join_refused"]
    assert why.startswith("it needs group.max.session.timeout.ms=600000, and the broker has 1000"), why
