"""What the broker tells the server's log: topics, groups and members at info, refused transactions as a warning."""

from __future__ import annotations

from typing import Any

from group_driver import commit, consumer_join, heartbeat, leave, stable
from wire_driver import Connection, Wire, delete_topics

from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic


def told(wire: Wire) -> list[tuple[str, dict[str, Any]]]:
    """The notices since the last call."""
    notices, wire.notices = wire.notices, []
    return [(notice.what, dict(notice.values)) for notice in notices]


def test_topics_that_are_created_and_deleted(wire: Wire, client: Connection) -> None:
    assert told(wire) == [], "the broker's own topics are no news"
    client.create_topic("t", 3)
    client.ask(MetadataRequest(topics=(MetadataRequestTopic(name="u"),), allow_auto_topic_creation=True), 9)
    client.ask(delete_topics("t", "absent"), 5)
    who = {"by_principal": "User:ANONYMOUS", "by_client_id": "client", "by_host": "/127.0.0.1"}
    assert told(wire) == [
        ("topic created", {"topic": "t", "partitions": 3, "replicas": 1} | who),
        ("topic created", {"topic": "u", "partitions": 1, "replicas": 1} | who),
        ("topic deleted", {"topic": "t", "partitions": 3} | who),
    ]


def test_a_classic_group_from_its_first_member_to_its_end(wire: Wire, client: Connection) -> None:
    joined = stable(client)
    member = {"group": "g", "member_id": joined.member_id, "client_id": "client", "host": "/127.0.0.1"}
    assert told(wire) == [
        ("member joined", member),
        ("group is stable", {"group": "g", "generation": 1, "members": 1}),
    ]
    leave(client, joined.member_id, reason="bye " * 100)
    (left, values), (empty, _) = told(wire)
    assert (left, values["member_id"], len(values["why"])) == ("member left", joined.member_id, 250)
    assert empty == "group is empty"


def test_heartbeats_and_commits_are_not_told(wire: Wire, client: Connection) -> None:
    client.create_topic("t")
    joined = stable(client)
    told(wire)
    assert heartbeat(client, joined) == 0
    assert commit(client, 1, member_id=joined.member_id, generation_id_or_member_epoch=1) == 0
    assert told(wire) == []


def test_a_member_whose_session_ends(wire: Wire, client: Connection) -> None:
    joined = stable(client)
    told(wire)
    wire.advance(10_000)
    (expired, values), (empty, group) = told(wire)
    assert (expired, values["group"], values["member_id"]) == ("session expired", "g", joined.member_id)
    assert (empty, group["group"], group["generation"]) == ("group is empty", "g", 2)


def test_a_member_of_a_consumer_group(wire: Wire, client: Connection) -> None:
    client.create_topic("t")
    told(wire)
    client.ask(consumer_join("m"), 1)
    (joined, values), *rest = told(wire)
    assert (joined, values["group"], values["member_id"]) == ("member joined", "g", "m")
    assert [(what, values["members"]) for what, values in rest] == [("group is stable", 1)]
