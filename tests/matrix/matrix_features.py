"""The features of the matrix: each a function that a client has to get through, whichever it is.

A feature lets the client do something and checks the result by itself: the records in the log, the offsets in the
group, and each member's partitions and records. Topics and groups are named after the feature: every client has a
server of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from group import Group, until
from matrix_stage import CODECS, Stage

from kohort.wire.batches import NewRecord, encode_batch

Feature = Callable[[Stage], None]
PARTITIONS = 6
PRODUCE, METADATA = 0, 3
LEFT_FOR_A_WHILE = -2
PAD = 60


def value(number: int, pad: int = 0) -> str:
    return f"v{number}" + "." * pad


def fill(stage: Stage, topic: str, first: int, count: int, partitions: int = PARTITIONS) -> None:
    """Values v0, v1, …, of the runner's own."""
    for partition in range(partitions):
        numbers = [n for n in range(first, first + count) if n % partitions == partition]
        stage.cluster.produce(topic, partition, [NewRecord(None, value(n).encode(), 0) for n in numbers])


def committed(stage: Stage, group: str) -> int:
    """Over all partitions."""
    return sum(offset.offset for offset in stage.cluster.committed(group).values())


# -- produce and read


def produces(codec: str) -> Feature:
    """Every record is in the log once, in order, as it was sent, in batches of this compression."""

    def feature(stage: Stage) -> None:
        topic = f"produce-{codec}"
        stage.cluster.create_topic(topic, 2)
        stage.driver.ask("produce", topic=topic, partitions=2, first=0, count=20, codec=codec, pad=PAD)
        stored = stage.stored(topic, 2)
        for partition in range(2):
            of_it = [r for r in stored if r.partition == partition]
            assert [r.value for r in of_it] == [value(n, PAD) for n in range(partition, 20, 2)], of_it
            assert [r.key for r in of_it] == [f"k{n}" for n in range(partition, 20, 2)], of_it
        assert {r.headers[:1] for r in stored} == {(("h", b"x"),)}, "headers"
        assert {r.batch.compression for r in stored} == {CODECS.index(codec)}, "compression"

    return feature


def produces_once(stage: Stage) -> None:
    """The answer to a Produce is lost on its way: the client sends it again, and the log has each record once."""
    topic = "idempotent"
    stage.cluster.create_topic(topic, 1)
    before = stage.relay.lost
    stage.relay.lose_answer(PRODUCE)
    stage.driver.ask("produce", topic=topic, partitions=1, first=0, count=20, codec="none", idempotent=True, pad=PAD)
    assert stage.relay.lost == before + 1, "no answer was lost"
    stored = stage.stored(topic, 1)
    assert [r.value for r in stored] == [value(n, PAD) for n in range(20)], "each once and in order"
    assert all(r.batch.producer_id >= 0 and r.batch.base_sequence >= 0 for r in stored), "with sequence numbers"


def reads(stage: Stage) -> None:
    """From the beginning, without a group: every record of every compression that the client knows."""
    topic = "read"
    stage.cluster.create_topic(topic, 2)
    number = 0
    for codec in stage.codecs:
        for partition in range(2):
            records = [
                NewRecord(f"k{n}".encode(), value(n, PAD).encode(), 1_700_000_000_000 + n, (("h", b"x"),))
                for n in range(number, number + 20)
            ]
            stage.cluster.produce(topic, partition, encode_batch(records, compression=CODECS.index(codec)))
            number += 20
    read = stage.driver.ask("read", topic=topic, partitions=2, count=number, isolation="read_uncommitted")["records"]
    expected = [[r.partition, r.offset, r.key, r.value] for r in stage.stored(topic, 2)]
    assert sorted(record[:4] for record in read) == sorted(expected)
    assert len(read) == number


# -- groups


def hands_over(protocol: str) -> Feature:
    """Two members; one leaves, another comes, one is killed: each time the partitions have one owner, and no value is
    left out."""

    def feature(stage: Stage) -> None:
        name = f"hand-over-{protocol}"
        stage.cluster.create_topic(name, PARTITIONS)
        fill(stage, name, 0, 300)
        with stage.group(name, name, protocol=protocol) as group:
            a, b = group.start("a"), group.start("b")
            group.wait_assigned([3, 3], a, b)
            group.wait(lambda: len(set(group.values())) == 300, "300 values")
            [listed] = [g for g in stage.cluster.list_groups(types=[protocol]) if g.group_id == name]
            assert listed.state == "Stable", listed
            a.close()
            assert a.closed
            group.wait_assigned([6], b)
            c = group.start("c")
            group.wait_assigned([3, 3], b, c)
            b.kill()
            group.wait_assigned([6], c)
            fill(stage, name, 300, 60)
            group.wait(lambda: len(set(group.values())) == 360, "every value, also what the killed one was to read")
            until(lambda: committed(stage, name) == 360, "all committed")
            c.close()
            assert not c.errors, c.errors

    return feature


def resumes(stage: Stage) -> None:
    """A later member does not read committed records again, and no record is left out."""
    name = "resume"
    stage.cluster.create_topic(name, 2)
    fill(stage, name, 0, 100, 2)
    with stage.group(name, name) as group:
        group.start("first")
        group.wait(lambda: len(group.values()) >= 100, "100 values")
        until(lambda: committed(stage, name) == 100, "100 committed")
        group.close()
    fill(stage, name, 100, 50, 2)
    with stage.group(name, name) as again:
        again.start("second")
        again.wait(lambda: len(again.values()) >= 50, "50 values")
        until(lambda: committed(stage, name) == 150, "150 committed")
        again.close()
    assert sorted(again.values()) == sorted(value(n) for n in range(100, 150)), "only what is new"


def moves_no_more_than_it_must(stage: Stage) -> None:
    """Cooperative: the first member always keeps at least half of its partitions while another member joins."""
    name = "cooperative"
    stage.cluster.create_topic(name, PARTITIONS)
    fill(stage, name, 0, 120)
    with stage.group(name, name, cooperative=True) as group:
        a = group.start("a")
        group.wait_assigned([6], a)
        b = group.start("b")
        group.wait_assigned([3, 3], a, b)
        since = a.assignments[a.assignments.index([0, 1, 2, 3, 4, 5]) :]
        assert all(set(a.assigned) <= set(held) for held in since), f"a held {since}"
        assert stage.cluster.describe_groups([name])[name].protocol == "cooperative-sticky"
        b.close()
        group.wait_assigned([6], a)
        group.wait(lambda: len(set(group.values())) == 120, "120 values")
        group.close()


def comes_back(protocol: str) -> Feature:
    """A static member that leaves and returns has its partitions again, and the other member keeps its own."""

    def feature(stage: Stage) -> None:
        name = f"static-{protocol}"
        stage.cluster.create_topic(name, PARTITIONS)
        if protocol == "consumer":
            # Its place is kept until its session ends: longer than a client takes to start on a busy machine.
            stage.cluster.alter_group_configs(name, {"consumer.session.timeout.ms": "30000"})
        with stage.group(name, name, protocol=protocol, session_timeout_ms=20_000) as group:
            a, b = group.start("a", instance="instance-a"), group.start("b", instance="instance-b")
            group.wait_assigned([3, 3], a, b)
            had, of_a = list(b.assigned), len(a.assignments)
            # A consumer group refuses a second holder of an instance id while the first is there, so that one leaves.
            if protocol == "consumer":
                b.close()
                # The partitions of a do not show it: b may be back before a learns of anything.
                until(lambda: away(stage, name) == ["instance-b"], "b is away and its place kept")
            else:
                b.kill()
            back = group.start("b", instance="instance-b")
            group.wait(lambda: back.assigned == had, "the same partitions again")
            fill(stage, name, 0, 60)
            group.wait(lambda: len(set(group.values())) == 60, "60 values")
            assert len(a.assignments) == of_a, f"a was disturbed: {a.assignments}"

    return feature


def away(stage: Stage, group: str) -> list[str | None]:
    """The static members of a consumer group that have left for a while, by instance id."""
    members = stage.cluster.describe_groups([group])[group].members
    return [member.group_instance_id for member in members if member.epoch == LEFT_FOR_A_WHILE]


def matches(protocol: str) -> Feature:
    """A subscription by regular expression: the topics that match, also one that comes later, and no other."""

    def feature(stage: Stage) -> None:
        name = f"regex-{protocol}"
        for number, topic in enumerate((f"{name}-a", f"{name}-b", f"other-{name}-a")):
            stage.cluster.create_topic(topic, 2)
            fill(stage, topic, number * 100, 20, 2)
        with stage.group(name, f"^{name}-.*", protocol=protocol, pattern=True) as group:
            group.start("a")
            group.wait(lambda: len(set(group.values())) == 40, "40 values")
            if stage.looks_for_topics:
                stage.cluster.create_topic(f"{name}-later", 2)
                fill(stage, f"{name}-later", 300, 20, 2)
                _sees_later_topic(stage, group)
            group.close()
        expected = {
            value(n) for first in (0, 100, 300)[: 3 if stage.looks_for_topics else 2] for n in range(first, first + 20)
        }
        assert set(group.values()) == expected

    return feature


def _sees_later_topic(stage: Stage, group: Group) -> None:
    """A member of kafka-python that asks for no metadata any more starts again.

    Any exception but KafkaError, as of a listener, ends its task that asks (ClusterMetadata._refresh_loop of version
    3.0.12). That happened once, on a machine under load.
    """

    def wait() -> None:
        group.wait(lambda: len(set(group.values())) == 60, "20 values of the topic that came later")

    before = stage.relay.counts[METADATA]
    try:
        wait()
    except AssertionError as error:
        asked = stage.relay.counts[METADATA] - before
        if stage.client != "kafka-python" or asked > 1:
            raise AssertionError(f"{error}; it asked for metadata {asked} times") from None
        group.close()
        group.start("b")
        wait()


# -- administration


def administers_topics(stage: Stage) -> None:
    """Creates, lists and deletes."""
    ask = stage.driver.ask
    ask("create_topic", topic="made", partitions=3)
    assert len(stage.cluster.topics()["made"].partitions) == 3
    until(lambda: "made" in ask("topics")["topics"], "listed")  # some keep for a moment what they know of topics
    ask("delete_topic", topic="made")
    assert "made" not in stage.cluster.topics()
    until(lambda: "made" not in ask("topics")["topics"], "listed no more")


def administers_groups(stage: Stage) -> None:
    """Lists and describes: a stable group with a member, and the same when it is empty."""
    ask = stage.driver.ask
    stage.cluster.create_topic("described", 2)
    with stage.group("described", "described") as group:
        only = group.start("only")
        group.wait_assigned([2], only)
        assert "described" in ask("groups")["groups"]
        said = ask("describe", group="described")
        assert (said["state"].lower(), said["members"]) == ("stable", 1), said
        group.close()
    said = ask("describe", group="described")
    assert (said["state"].lower(), said["members"]) == ("empty", 0), said


def administers_offsets(stage: Stage) -> None:
    """Reads the offsets of a group, and sets one."""
    stage.cluster.create_topic("offsets", 2)
    fill(stage, "offsets", 0, 20, 2)
    stage.cluster.commit("offsets", {("offsets", 0): 5, ("offsets", 1): 7})
    said = stage.driver.ask("offsets", group="offsets", topic="offsets", partitions=2)
    assert said == {"offsets": {"0": 5, "1": 7}}, said
    stage.driver.ask("set_offset", group="offsets", topic="offsets", partition=0, offset=2)
    assert stage.cluster.committed("offsets")["offsets", 0].offset == 2
    assert stage.cluster.committed("offsets")["offsets", 1].offset == 7


def deletes_offsets(stage: Stage) -> None:
    stage.cluster.create_topic("deleted", 2)
    stage.cluster.commit("deleted", {("deleted", 0): 5, ("deleted", 1): 7})
    stage.driver.ask("delete_offset", group="deleted", topic="deleted", partition=0)
    assert {place: at.offset for place, at in stage.cluster.committed("deleted").items()} == {("deleted", 1): 7}


def deletes_groups(stage: Stage) -> None:
    stage.cluster.create_topic("gone", 1)
    stage.cluster.commit("gone", {("gone", 0): 1})
    stage.driver.ask("delete_group", group="gone")
    assert "gone" not in {group.group_id for group in stage.cluster.list_groups()}
