"""The rights by which operators release and redeliver records of share groups, and the lines of the audit."""

from __future__ import annotations

from typing import Any

import pytest
from acl_driver import SETTINGS, Secured
from share_driver import ACCEPT, Member, row, share_wire
from wire_driver import GROUP, SET

from kohort.broker.authorization import Operation, Principal, Resource
from kohort.wire.schemas.alter_share_group_offsets import (
    NOT_SET,
    AlterShareGroupOffsetsRequest,
    NewOffset,
    NewOffsetsTopic,
    OffsetRange,
)

GROUP_DENIED, TOPIC_DENIED, NO_SESSION = 30, 29, 122
OPENS, CLOSES = 0, -1


class World:
    """A topic with ten records; `worker` holds 1 to 3 of them, and has finished 0."""

    def __init__(self) -> None:
        self.secured = Secured(share_wire(**SETTINGS))
        self.wire = self.secured.wire
        self.topic_id = self.secured.root.create_topic("t")
        assert self.secured.root.alter_configs("g", GROUP, ("share.auto.offset.reset", SET, "earliest")) == (0, None)
        for index in range(10):
            self.secured.root.produce("t", str(index))
        self.worker = self.member("worker")
        for resource, name in ((Resource.GROUP, "g"), (Resource.TOPIC, "t")):
            self.allow("worker", resource, name)
        assert self.worker.beat("t").error_code == 0
        assert self.worker.take(max_records=4, batch_size=1) != []
        assert self.worker.ack((0, 0, ACCEPT)) == 0
        self.lines()

    def allow(self, user: str, resource: Resource, name: str) -> None:
        self.secured.allow(f"User:{user}", Operation.READ, resource, name)

    def member(self, user: str, name: str = "worker") -> Member:
        return Member(self.wire, name, self.topic_id, principal=Principal(user), client_id=user)

    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        notices, self.wire.notices = self.wire.notices, []
        return [(notice.what, dict(notice.values)) for notice in notices if notice.what != "member joined"]

    def held(self) -> int:
        """The records that are locked."""
        self.wire.now += 1
        shards = self.wire.broker.state.shares.shards
        return sum(len(served.locks) for shard in shards for served in shard.served.values())

    def release(self, user: str) -> tuple[int, int]:
        """As `kohort groups release` does. Returns the error of the request and that of the partition."""
        operator = self.member(user)
        opened = operator.fetch(max_bytes=0, max_records=0, min_bytes=0)
        if opened.error_code:
            return opened.error_code, 0
        operator.epoch = CLOSES
        closed = operator.fetch(partitions=(), max_bytes=0, max_records=0, min_bytes=0)
        return closed.error_code, row(opened).error_code

    def redeliver(self, user: str) -> tuple[int, int]:
        asked = NewOffset(
            partition_index=0, start_offset=NOT_SET, redeliver=(OffsetRange(first_offset=0, last_offset=0),)
        )
        request = AlterShareGroupOffsetsRequest(
            group_id="g", topics=(NewOffsetsTopic(topic_name="t", partitions=(asked,)),)
        )
        answer = self.wire.connect(principal=Principal(user), client_id=user).ask(request, 0)
        return answer.error_code, answer.responses[0].partitions[0].error_code if answer.responses else 0


@pytest.fixture
def world() -> World:
    return World()


def test_who_may_neither_read_the_group_nor_the_topic(world: World) -> None:
    assert world.held() == 3
    for act in (world.release, world.redeliver):
        assert act("eve") == (GROUP_DENIED, 0)
    world.allow("eve", Resource.TOPIC, "t")
    for act in (world.release, world.redeliver):
        assert act("eve") == (GROUP_DENIED, 0)
    assert world.held() == 3
    [(what, values), *_] = world.lines()
    assert (what, values["principal"], values["resource"]) == ("denied", "User:eve", "GROUP:g")


@pytest.mark.parametrize("ends", ["by its last request", "with its connection"])
def test_who_may_read_the_group_but_not_the_topic(world: World, ends: str) -> None:
    """In Kafka, the end of such a session gives the member's records back: that repeats until they are archived."""
    world.allow("eve", Resource.GROUP, "g")
    if ends == "by its last request":
        assert world.release("eve") == (0, TOPIC_DENIED)
    else:
        operator = world.member("eve")
        assert row(operator.fetch()).error_code == TOPIC_DENIED
        operator.connection.close()
    assert world.redeliver("eve") == (0, TOPIC_DENIED)
    assert world.held() == 3
    lines = world.lines()
    assert ("TOPIC:t", "User:eve") in {(values.get("resource"), values.get("principal")) for _, values in lines}
    assert "records redelivered" not in {what for what, _ in lines}


def test_a_right_that_is_given_during_a_session_counts(world: World) -> None:
    world.allow("eve", Resource.GROUP, "g")
    other = world.member("eve", "eve")
    assert row(other.fetch()).error_code == TOPIC_DENIED
    world.allow("eve", Resource.TOPIC, "t")
    assert other.take(max_records=2, batch_size=1) != []
    held = world.held()
    other.connection.close()
    assert world.held() < held


def test_what_operators_did_is_in_the_log(world: World) -> None:
    for resource, name in ((Resource.GROUP, "g"), (Resource.TOPIC, "t")):
        world.allow("ops", resource, name)
    world.lines()
    who = {"by_principal": "User:ops", "by_client_id": "ops", "by_host": "/127.0.0.1"}
    assert world.release("ops") == (0, 0)
    assert world.held() == 0
    assert world.lines() == [("share session taken over", {"group": "g", "member_id": "worker"} | who)]
    assert world.worker.ack((1, 1, ACCEPT)) == NO_SESSION
    assert world.redeliver("ops") == (0, 0)
    assert world.lines() == [("records redelivered", {"group": "g", "records": 1} | who)]
    world.worker.epoch = OPENS
    assert world.worker.take(max_records=1, batch_size=1) == [(0, 0, 1)]


def test_a_member_that_begins_again_is_no_news(world: World) -> None:
    world.worker.epoch = OPENS
    world.worker.fetch()
    assert world.lines() == []
