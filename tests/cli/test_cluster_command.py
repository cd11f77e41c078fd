"""`kohort cluster describe` against a server of two brokers."""

from __future__ import annotations

import json

import pytest
from run_command import Kohort

from kohort.cli.cluster import document_of, lines_of
from kohort.client.cluster import Cluster
from kohort.client.metadata import Node, Partition, Topic


def test_brokers_and_counts(kohort: Kohort, bootstrap: str, unique: str) -> None:
    with Cluster(bootstrap) as cluster:
        cluster.create_topic(unique, 3)
        cluster.commit(unique, {(unique, 0): 0})
    heading, first, second, *lines = kohort("cluster", "describe").out.splitlines()
    assert heading.split() == ["ID", "ADDRESS", "RACK", "LEADS"]
    assert [first.split()[1], second.split()[1]] == bootstrap.split(",")
    document = json.loads(kohort("cluster", "describe", "-o", "json").out)
    assert lines[0] == f"cluster {document['cluster_id']}: 2 brokers, controller {document['controller']}"
    assert lines[1:] == [
        f"1 topic and {document['internal_topics']} internal, with {document['partitions']} partitions",
        "1 group: 1 Empty",
    ]
    assert (document["topics"], document["groups"]) == (1, {"Empty": 1})
    assert sum(node["leads"] for node in document["nodes"]) == document["partitions"]
    assert (document["partitions_without_leader"], document["under_replicated_partitions"]) == (0, 0)


def test_what_is_missing_is_counted() -> None:
    parts = (Partition("a", 0, -1, 1, (1, 2), ()), Partition("a", 1, 1, 1, (1, 2), (1,)))
    document = document_of(None, -1, [Node(1, "host", 9092)], [Topic("a", parts)], {})
    assert lines_of(document) == [
        "cluster without an id: 1 broker, controller unknown",
        "1 topic and 0 internal, with 2 partitions",
        "0 groups",
        "1 partition without a leader",
        "2 partitions with fewer replicas in sync than they have",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("drain", "2147483648"), "'node'"),
        (("drain", "node1"), "'node'"),
        (("move", "128", "--to", "1"), "'slot'"),
        (("move", "5", "--to", "99999999999999999999"), "'--to'"),
    ],
)
def test_numbers_out_of_range(kohort: Kohort, arguments: tuple[str, ...], says: str) -> None:
    err = kohort("cluster", *arguments, "--storage", "postgresql://127.0.0.1:1/none", code=2).err
    assert err.startswith(f"Error: Invalid value for {says}"), err


def test_a_value_that_is_no_database(kohort: Kohort) -> None:
    for command in (("drain", "1"), ("move", "5", "--to", "1"), ("nodes",)):
        err = kohort("cluster", *command, "--storage", "host=a password=secret", code=2).err
        assert "it takes postgresql://USER@HOST/DATABASE" in err
        assert "secret" not in err
