"""The consumer that a query's membership uses: its settings and its subscription."""

from __future__ import annotations

import re

from kohort.client.consumer.blocking import BlockingGroupConsumer
from kohort.client.consumer.options import ConsumerOptions
from kohort.spark.options.source import Options


def subscribe(consumer: BlockingGroupConsumer, options: Options) -> None:
    if options.pattern is not None:
        consumer.subscribe(pattern=unanchored(options.pattern))
    else:
        consumer.subscribe(options.topics)


def unanchored(pattern: str) -> str:
    """A pattern for whole names that matches where `pattern` is found anywhere in the name, as in Spark's source.

    Flags for the whole pattern may stand only at its beginning; they become flags of a group. The flags for ASCII and
    Unicode are left out, since names of topics are ASCII.
    """
    flags = re.match(r"(?:\(\?[aimsux]+\))*", pattern)
    assert flags is not None
    letters = "".join(letter for letter in "imsx" if letter in flags[0])
    end = "\n)" if "x" in letters else ")"  # the pattern may end with a comment
    return f".*(?{letters}:{pattern[flags.end() :]}{end}.*"


def settings(options: Options) -> ConsumerOptions:
    member = options.member
    assert member is not None
    return {
        "group_protocol": member.protocol,
        "group_instance_id": member.instance_id,
        "client_id": options.client_id,
        "client_rack": member.rack,
        "assignors": member.assignors,
        "group_remote_assignor": member.remote_assignor,
        "session_timeout_ms": member.session_timeout_ms,
        "heartbeat_interval_ms": member.heartbeat_interval_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "request_timeout_ms": options.request_timeout_ms,
        "api_timeout_ms": options.api_timeout_ms,
        "connect_timeout_ms": options.connect_timeout_ms,
        "metadata_max_age_ms": options.metadata_max_age_ms,
        "security": options.security,
    }
