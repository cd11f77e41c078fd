"""`kohort groups assign --dry-run`: of both protocols, by lag, with plug-ins, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from consumer_member import ConsumerMember
from group_member import GroupMember
from run_command import Kohort

from kohort.client.cluster import Cluster
from kohort.server import assignor_plugins
from kohort.wire.batches import NewRecord

Join = Callable[..., ConsumerMember]

EXAMPLE = Path(__file__).parents[2] / "examples" / "kohort-assignor-example"


@pytest.fixture
def topic(kohort: Kohort, unique: str) -> str:
    kohort("topics", "create", unique, "--partitions", "4")
    return unique


@pytest.fixture
def join(bootstrap: str, topic: str) -> Iterator[Join]:
    """Members of the consumer group that is named like the topic; at the end they leave."""
    members = []

    def joined(name: str, *topics: str, **fields: Any) -> ConsumerMember:
        members.append(ConsumerMember(bootstrap, topic, name, *topics, **fields))
        return members[-1]

    yield joined
    for member in members:
        member.leave()


@pytest.fixture
def pair(join: Join, topic: str, bootstrap: str) -> tuple[ConsumerMember, ConsumerMember]:
    """Two members with two partitions each, all committed at 0."""
    with Cluster(bootstrap) as cluster:
        cluster.commit(topic, {(topic, partition): 0 for partition in range(4)})
    first = join("worker-1", topic, instance_id="first")
    second = join("worker-2", topic, instance_id="second-standby")
    first.heartbeat(acknowledges=False)
    first.heartbeat()
    second.heartbeat()
    assert (first.count(), second.count()) == (2, 2)
    return first, second


def install(monkeypatch: pytest.MonkeyPatch, entries: list[EntryPoint]) -> None:
    """These are the plug-ins that are installed."""
    monkeypatch.setattr(assignor_plugins, "installed", lambda: entries)


def dry(kohort: Kohort, group: str, assignor: str, *more: str, code: int = 0) -> str:
    ran = kohort("groups", "assign", "--dry-run", group, "--assignor", assignor, *more, code=code)
    return ran.err if code else ran.out


def test_a_group_that_would_stay_as_it_is(kohort: Kohort, topic: str, pair: tuple[ConsumerMember, ...]) -> None:
    lines = dry(kohort, topic, "uniform").splitlines()
    assert lines[0].split() == ["MEMBER", "HOST", "NOW", "THEN", "GETS", "GIVES-UP"]
    assert lines[1].split() == ["first", "127.0.0.1", "2", "2", "-", "-"]
    assert lines[3] == f"{topic}: Stable, 2 members; with uniform (now uniform), of 4 partitions: none moved"
    assert lines[4] == "partitions a member: 2 now, 2 then"
    assert lines[5].startswith("nothing was changed; computed here in ")


def test_lag_is_looked_up(
    kohort: Kohort, topic: str, bootstrap: str, pair: tuple[ConsumerMember, ConsumerMember]
) -> None:
    """One member has the whole lag: with `lag` the other member takes half of it."""
    with Cluster(bootstrap) as cluster:
        (mine,) = pair[0].owned.values()
        for partition in mine:
            cluster.produce(topic, partition, [NewRecord(None, b"x", 0)] * 3000)
    told = json.loads(dry(kohort, topic, "lag", "-o", "json"))
    by_id = {member["instance_id"]: member for member in told["members"]}
    assert (by_id["first"]["lag_now"], by_id["first"]["lag_then"]) == (6000, 3000)
    assert (by_id["second-standby"]["lag_now"], by_id["second-standby"]["lag_then"]) == (0, 3000)
    assert told["moved"] == sum(len(p) for m in told["members"] for p in m["gets"].values()) > 0
    assert "lag of a member: 0 to 6000 now, 3000 then" in dry(kohort, topic, "lag")
    assert json.loads(dry(kohort, topic, "uniform", "-o", "json"))["moved"] == 0


def test_the_predicted_moves_are_the_real_ones(kohort: Kohort, topic: str, join: Join) -> None:
    kohort("topics", "create", f"{topic}-more", "--partitions", "5")
    names = [f"worker-{number}" for number in range(3)]
    members = [join(name, topic, f"{topic}-more") for name in names]
    settle(*members)
    told = {m["client_id"]: m for m in json.loads(dry(kohort, topic, "range", "-o", "json"))["members"]}
    before = assignments(kohort, topic)
    kohort("groups", "configs", topic, "--set", "consumer.assignor=range")
    settle(*members)
    after = assignments(kohort, topic)
    assert {name: after[name] - before[name] for name in names} == {name: flat(told[name]["gets"]) for name in names}
    assert {name: before[name] - after[name] for name in names} == {
        name: flat(told[name]["gives_up"]) for name in names
    }
    assert any(told[name]["gets"] for name in names)


def settle(*members: ConsumerMember) -> None:
    for _ in range(4):
        for member in members:
            member.heartbeat()


def flat(partitions: dict[str, list[int]]) -> set[tuple[str, int]]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


def assignments(kohort: Kohort, group: str) -> dict[str, set[tuple[str, int]]]:
    (described,) = json.loads(kohort("groups", "describe", group, "-o", "json").out)
    assert described["state"] == "Stable"
    return {member["client_id"]: flat(member["assignment"]) for member in described["members"]}


def test_an_installed_assignor_is_tried(
    kohort: Kohort, topic: str, pair: tuple[ConsumerMember, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    entry = EntryPoint("standby", "kohort_assignor_example.standby:StandbyAssignor", assignor_plugins.GROUP)
    install(monkeypatch, [entry])
    lines = dry(kohort, topic, "standby").splitlines()
    assert lines[1].split()[:4] == ["first", "127.0.0.1", "2", "4"]
    assert lines[2].split()[:4] == ["second-standby", "127.0.0.1", "2", "0"]
    assert "of 4 partitions: 2 moved" in lines[3]
    assert lines[4] == "partitions a member: 2 now, 0 to 4 then"


def test_a_refusal_has_its_reason(
    kohort: Kohort, topic: str, pair: tuple[ConsumerMember, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "twice_assignor.py").write_text(
        "class Twice:\n    name = 'twice'\n    def assign(self, group):\n"
        "        [topic] = group.topics\n        return {member: {topic: [0]} for member in group.members}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    entries = [
        EntryPoint("twice", "twice_assignor:Twice", assignor_plugins.GROUP),
        EntryPoint("absent", "twice_assignor:Absent", assignor_plugins.GROUP),
    ]
    install(monkeypatch, entries)
    told = dry(kohort, topic, "twice", code=1)
    assert "assignor absent: twice_assignor:Absent cannot be loaded" in told
    assert f"what assignor twice answers for group {topic} would be refused: partition 0 of {topic} goes to " in told
    assert "no assignor thrice is installed here; there are uniform, range, rack, lag, twice" in dry(
        kohort, topic, "thrice", code=1
    )


def test_a_classic_group_of_consumers(kohort: Kohort, topic: str, bootstrap: str) -> None:
    member = GroupMember(bootstrap, topic, {topic: (0, 3)})
    lines = dry(kohort, topic, "uniform").splitlines()
    assert lines[1].split()[1:] == ["127.0.0.1", "2", "4", f"{topic}[1-2]", "-"]
    assert "with uniform (now range), of 4 partitions: 2 newly assigned" in lines[2]
    member.leave()
    assert dry(kohort, topic, "uniform", code=1).endswith("has no members to assign partitions to\n")


def test_a_pattern_is_resolved_here(kohort: Kohort, topic: str, join: Join) -> None:
    join("worker-1", topic)
    kohort("topics", "create", f"{topic}-more", "--partitions", "3")
    kohort("topics", "create", f"not-{topic}", "--partitions", "3")
    join("worker-2", subscribed_topic_regex=f"{topic}.*")
    told = json.loads(dry(kohort, topic, "uniform", "-o", "json"))
    assert (told["partitions"], told["balance"]["then"]) == (7, {"least": 3, "most": 4})
    then = {member["client_id"]: member["then"] for member in told["members"]}
    assert then["worker-1"] + then["worker-2"] == 7


def test_dry_runs_that_are_impossible(kohort: Kohort, topic: str) -> None:
    assert dry(kohort, "nobody", "uniform", code=1) == "kohort: group nobody does not exist\n"
    told = kohort("groups", "assign", topic, "--assignor", "lag", code=2).err
    assert "add --dry-run" in told
    assert "consumer.assignor=lag" in told
