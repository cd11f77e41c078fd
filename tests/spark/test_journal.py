"""The groups' journal in Spark: its topic has one row of JSON for each story; the newest row of each key counts."""

from __future__ import annotations

from typing import Any

import pytest
from group_member import GroupMember

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

STORY = """
    group STRING, number BIGINT, started_ms BIGINT, took_ms BIGINT, outcome STRING, moved INT,
    cause STRUCT<what: STRING, client_id: STRING, host: STRING, waited_ms: BIGINT>,
    held_up_by ARRAY<STRUCT<how: STRING, client_id: STRING, waited_ms: BIGINT>>,
    members ARRAY<STRUCT<client_id: STRING, assignment: MAP<STRING, ARRAY<INT>>>>
"""


def test_stories_in_a_query(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    for group in ("billing", "shipping"):
        GroupMember(server.bootstrap_servers, group, {"orders": (0, 1)}).leave()
    topic = (
        spark.read.format("kohort")
        .option("kafka.bootstrap.servers", server.bootstrap_servers)
        .option("subscribe", "__kohort_journal")
        .load()
    )
    topic.createOrReplaceTempView("journal")
    rows = spark.sql(
        f"""
        SELECT story.* FROM (
            SELECT from_json(CAST(value AS STRING), '{STORY}') AS story,
                   row_number() OVER (PARTITION BY key ORDER BY offset DESC) AS nth
            FROM journal)
        WHERE nth = 1 ORDER BY story.group, story.number
        """
    ).collect()
    assert [(row.group, row.number, row.outcome, row.cause.what) for row in rows] == [
        ("billing", 1, "Stable", "member joined"),
        ("billing", 2, "Empty", "member left"),
        ("shipping", 1, "Stable", "member joined"),
        ("shipping", 2, "Empty", "member left"),
    ]
    assert rows[0].cause.client_id == "by-hand"
    assert rows[0].members[0].assignment == {"orders": [0, 1]}
