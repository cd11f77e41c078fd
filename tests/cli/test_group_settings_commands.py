"""`kohort groups configs`, `hold` and `release`, and the settings and freezes in `groups describe`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from consumer_member import ConsumerMember
from group_member import GroupMember
from run_command import Kohort

SESSION = "consumer.session.timeout.ms"
UNTIL = "consumer.hold.until.timestamp.ms"


@pytest.fixture
def group(kohort: Kohort, bootstrap: str, unique: str) -> Iterator[str]:
    """A consumer group of one member."""
    kohort("topics", "create", unique, "--partitions", "4")
    member = ConsumerMember(bootstrap, unique, "a", unique)
    yield unique
    member.leave()


def settings(kohort: Kohort, group: str) -> dict[str, tuple[str, str]]:
    entries = json.loads(kohort("groups", "configs", group, "-o", "json").out)
    return {entry["name"]: (entry["value"], entry["source"]) for entry in entries}


def described(kohort: Kohort, group: str) -> dict[str, object]:
    [document] = json.loads(kohort("groups", "describe", group, "--members", "-o", "json").out)
    return {"configs": document["configs"], "hold": document["hold"]}


def test_settings_are_shown_and_changed(kohort: Kohort, unique: str) -> None:
    assert settings(kohort, unique)[SESSION] == ("45000", "default")
    lines = kohort("groups", "configs", unique, "--set", f"{SESSION}=50000", "--set", "consumer.assignor=range").out
    assert [SESSION, "50000", "group"] in [line.split() for line in lines.splitlines()]
    changed = settings(kohort, unique)
    assert (changed[SESSION], changed["consumer.assignor"]) == (("50000", "group"), ("range", "group"))
    kohort("groups", "configs", unique, "--unset", SESSION, "--set", "consumer.assignor=lag")
    changed = settings(kohort, unique)
    assert (changed[SESSION], changed["consumer.assignor"]) == (("45000", "default"), ("lag", "group"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", f"{SESSION}=1"], 1, "between 45000 and 60000"),
        (["--set", "consumer.nope=1"], 1, "There is no group config consumer.nope"),
        (["--unset", "consumer.nope"], 1, "There is no group config consumer.nope"),
        (["--set", SESSION], 2, "--set NAME=VALUE"),
        (["--unset", f"{SESSION}=1"], 2, "--unset NAME"),
        (["--set", f"{SESSION}=50000", "--unset", SESSION], 2, "given twice"),
    ],
)
def test_bad_settings_are_refused(kohort: Kohort, unique: str, arguments: list[str], code: int, words: str) -> None:
    assert words in " ".join(kohort("groups", "configs", unique, *arguments, code=code).err.split())


def test_a_hold_is_set_told_and_released(kohort: Kohort, group: str) -> None:
    before = time.time() * 1000
    said = kohort("groups", "hold", group, "--for", "5m", "--until-members", "3").out
    assert said.startswith(f"{group}: rebalances are held for 5 min, until ")
    assert said.endswith(" or a join makes it 3 members\n")
    until, source = settings(kohort, group)[UNTIL]
    assert source == "group"
    assert before + 300_000 <= int(until) <= time.time() * 1000 + 300_000
    assert described(kohort, group)["hold"] == {"until_ms": int(until), "until_members": 3, "dead_members": False}
    lines = kohort("groups", "describe", group).out
    assert "rebalances are held for 4 min 59 s more" in lines or "rebalances are held for 5 min more" in lines
    assert "or a join makes it 3 members; partitions of members that die move at once" in lines
    said = kohort("groups", "hold", group, "--for", "1h", "--dead-members").out
    assert "rebalances are now held for 1 h" in said
    hold = described(kohort, group)["hold"]
    assert isinstance(hold, dict)
    assert (hold["until_members"], hold["dead_members"]) == (None, True)
    assert kohort("groups", "release", group).out == f"{group}: rebalances are not held any more\n"
    assert described(kohort, group) == {"configs": {}, "hold": None}
    assert "held" not in kohort("groups", "describe", group).out
    assert kohort("groups", "release", group).out == f"{group}: rebalances were not held\n"


def test_describe_tells_a_groups_own_settings(kohort: Kohort, group: str) -> None:
    kohort("groups", "configs", group, "--set", f"{SESSION}=50000")
    assert f"settings of its own: {SESSION}=50000" in kohort("groups", "describe", group, "--state").out
    assert described(kohort, group) == {"configs": {SESSION: "50000"}, "hold": None}


def test_a_hold_that_cannot_be(kohort: Kohort, bootstrap: str, group: str, unique: str) -> None:
    for length in ("soon", "5", "0s", "5m3", "-5m", ""):
        assert "write 30s, 5m, 1h30m or 2d" in kohort("groups", "hold", group, f"--for={length}", code=2).err, length
    assert "at most 86400 s (group.consumer.hold.max.ms)" in kohort("groups", "hold", group, "--for", "25h", code=1).err
    assert "does not exist" in kohort("groups", "hold", f"{unique}-absent", "--for", "5m", code=1).err
    assert described(kohort, group)["hold"] is None


def test_a_classic_group_is_not_held(kohort: Kohort, bootstrap: str, unique: str) -> None:
    kohort("topics", "create", unique)
    member = GroupMember(bootstrap, unique, {unique: (0,)})
    try:
        ran = kohort("groups", "hold", unique, "--for", "5m", code=1)
        assert f"group {unique} is a classic group" in ran.err
        kohort("groups", "configs", unique, "--set", f"{SESSION}=50000")
        assert f"{SESSION}=50000" in kohort("groups", "describe", unique).out
    finally:
        member.leave()
