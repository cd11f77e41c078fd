"""The last owners of partitions that nobody has: in words, in `describe` and in `watch`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from group_member import GroupMember
from run_command import Kohort
from surveyed_groups import TOPIC, story, survey, surveyed

from kohort.cli.groups.last_owners import last_owners
from kohort.cli.groups.watch.screen import stuck_text
from kohort.cli.groups.watch.trends import Trends
from kohort.cli.groups.wording import Names
from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord


def person(client: str, **fields: Any) -> dict[str, Any]:
    return {"member_id": f"{client}-11112222", "client_id": client, "host": "/10.0.0.1", **fields}


def gains(number: int, client: str, *partitions: int) -> dict[str, Any]:
    return story(number, number, "member joined", client, members=[person(client, gained={TOPIC: [*partitions]})])


def losses(number: int, client: str, *partitions: int) -> dict[str, Any]:
    gone = [person(client, lost={TOPIC: [*partitions]})]
    return story(number, number, "session expired", client, outcome="Empty", cause={"waited_ms": 9_000}, gone=gone)


def test_the_last_loss_counts() -> None:
    stories = [losses(1, "a", 0, 1, 2, 3), gains(2, "b", 0, 1), losses(3, "b", 0, 1), gains(4, "c", 2)]
    found = last_owners(stories, None, Names([]))
    assert [(one.member["client_id"], one.places) for one in found] == [
        ("b", ((TOPIC, 0), (TOPIC, 1))),
        ("a", ((TOPIC, 3),)),
    ]
    assert found[0].words.endswith("; b on 10.0.0.1: session expired after 9000 ms of silence")
    assert last_owners(stories, [(TOPIC, 9)], Names([])) == []


def test_describe_names_the_last_owner_of_partitions_that_nobody_reads(
    kohort: Kohort, bootstrap: str, cluster: Cluster, unique: str
) -> None:
    cluster.create_topic(unique, 1)
    GroupMember(bootstrap, unique, {unique: (0,)}, client_id="worker-1").leave()
    cluster.produce(unique, 0, [NewRecord(None, b"v", 1)])
    assert "nobody has" not in kohort("groups", "describe", unique).out, "there is no lag"
    cluster.commit(unique, {(unique, 0): 0})
    said = kohort("groups", "describe", unique).out
    assert f"{unique}: nobody has {unique}[0] since " in said
    assert "; worker-1 on 127.0.0.1 left" in said
    [document] = json.loads(kohort("groups", "describe", unique, "-o", "json").out)
    [last] = document["last_owners"]
    assert (last["client_id"], last["partitions"]) == ("worker-1", [{"topic": unique, "partitions": [0]}])


def test_watch_names_it_too() -> None:
    trends = Trends()
    one = surveyed("g", {0: 1}, stories=[gains(1, "w", 0), losses(2, "w", 0)])
    for second in (0, 10):
        [row] = trends.rows(survey(second, {0: 5}, replace(one)))
    [stuck] = row.stuck
    assert stuck_text(row, stuck) == (
        "g: nobody reads orders[0] for 10 s, lag 4; w on 10.0.0.1: session expired after 9000 ms of silence"
    )
