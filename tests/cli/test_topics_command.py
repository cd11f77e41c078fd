"""`kohort topics` against a server."""

from __future__ import annotations

import json

import pytest
from run_command import Kohort, Terminal


def test_create_list_describe_delete(kohort: Kohort, unique: str) -> None:
    ran = kohort(
        "topics", "create", unique, "--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=60000"
    )
    assert ran.out == f"created topic {unique}\n"
    assert [unique, "3", "2"] in [line.split() for line in kohort("topics", "list").out.splitlines()]
    kohort("produce", unique, "--partition", "1", stdin="a\nb\n")
    described = kohort("topics", "describe", unique).out.splitlines()
    assert described[0] == f"{unique}: 3 partitions, replication factor 2"
    assert described[1] == "  retention.ms=60000"
    assert described[2].split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "EARLIEST-OFFSET", "LATEST-OFFSET"]
    assert [line.split()[0] for line in described[3:]] == ["0", "1", "2"]
    assert described[4].split()[-2:] == ["0", "2"]
    assert kohort("topics", "delete", unique, "--yes").out == f"deleted topic {unique}\n"
    assert unique not in kohort("topics", "list").out


def test_json(kohort: Kohort, unique: str) -> None:
    kohort("topics", "create", unique, "--partitions", "2", "--config", "cleanup.policy=compact")
    listed = json.loads(kohort("topics", "list", "-o", "json").out)
    assert {"topic": unique, "partitions": 2, "replication_factor": 1, "internal": False} in listed
    (described,) = json.loads(kohort("topics", "describe", unique, "-o", "json").out)
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert len(described["topic_id"]) == 32
    partition = described["partitions"][1]
    assert partition["replicas"] == partition["isr"] == [partition["leader"]]
    assert (partition["partition"], partition["earliest_offset"], partition["latest_offset"]) == (1, 0, 0)


def test_creating_twice_fails_unless_told_otherwise(kohort: Kohort, unique: str) -> None:
    kohort("topics", "create", unique)
    ran = kohort("topics", "create", unique, code=1)
    assert "TOPIC_ALREADY_EXISTS" in ran.err
    assert ran.err.count("\n") == 1
    assert kohort("topics", "create", unique, "--if-not-exists").out == f"topic {unique} exists already\n"


def test_bad_topics_are_the_brokers_to_refuse(kohort: Kohort, unique: str) -> None:
    assert "INVALID_REPLICATION_FACTOR" in kohort("topics", "create", unique, "--replication-factor", "3", code=1).err
    assert "INVALID_TOPIC_EXCEPTION" in kohort("topics", "create", "no spaces", code=1).err
    assert "INVALID_CONFIG" in kohort("topics", "create", unique, "--config", "retention.ms=soon", code=1).err


def test_missing_topics_are_named_after_the_others(kohort: Kohort, unique: str) -> None:
    kohort("topics", "create", unique)
    ran = kohort("topics", "describe", unique, "missing", code=1)
    assert ran.out.startswith(f"{unique}: 1 partition, ")
    assert ran.err == "kohort: topic missing does not exist\n"
    ran = kohort("topics", "delete", "missing", unique, "--yes", code=1)
    assert ran.out == f"deleted topic {unique}\n"
    assert "missing" in ran.err


def test_the_topic_that_was_meant(kohort: Kohort, unique: str) -> None:
    meant = f"payments-{unique}"
    kohort("topics", "create", meant)
    why = f"kohort: topic payment-{unique} does not exist; did you mean {meant}?\n"
    assert kohort("topics", "describe", f"payment-{unique}", code=1).err == why
    assert kohort("topics", "delete", f"payment-{unique}", "--yes", code=1).err == why


def test_the_deletion_of_a_missing_topic(kohort: Kohort) -> None:
    assert kohort("topics", "delete", "nope", "--yes", code=1).err == "kohort: topic nope does not exist\n"
    refused = kohort("topics", "delete", "__consumer_offsets", "--yes", code=1).err
    assert refused.startswith("kohort: cannot delete topic __consumer_offsets: INVALID_TOPIC_EXCEPTION")


def test_internal_topics_are_shown_on_demand(kohort: Kohort, unique: str) -> None:
    kohort("topics", "create", unique)
    kohort("consume", unique, "--group", unique, "--exit-at-end")
    kohort("produce", unique, stdin="a\n")
    kohort("consume", unique, "--group", unique, "--from-beginning", "--exit-at-end")
    assert "__consumer_offsets" not in kohort("topics", "list").out
    assert "__consumer_offsets" in kohort("topics", "list", "--internal").out


def test_a_deletion_without_confirmation_does_nothing(
    kohort: Kohort, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kohort("topics", "create", unique)
    ran = kohort("topics", "delete", unique, stdin="y\n", code=2)
    assert ran.err == "kohort: nothing was deleted: this is no terminal to confirm on; add --yes\n"
    assert unique in kohort("topics", "list").out
    monkeypatch.setattr("kohort.cli.confirmation.sys", Terminal)
    assert "nothing was deleted\n" in kohort("topics", "delete", unique, stdin="n\n", code=1).err
    assert unique in kohort("topics", "list").out
    ran = kohort("topics", "delete", unique, stdin="y\n")
    assert f"Delete topic {unique} and all records? [y/N]: y\ndeleted topic {unique}\n" in ran.out
