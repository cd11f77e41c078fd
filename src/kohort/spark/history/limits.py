"""What counts as an incident of a group. `kohort groups doctor` goes by the same limits, without Spark."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits beyond which something is an incident. Durations in milliseconds."""

    storm_rebalances: int = 8
    storm_gap_ms: int = 2 * MINUTE
    saw_teeth: int = 3
    saw_gap_ms: int = 30 * MINUTE
    zombie_commits: int = 3
    """So many commits to a group without members are a zombie."""
    zombie_grace_ms: int = 10_000
    handover_ms: int = 10 * MINUTE
    """A sawtooth that begins within this time after a partition moved is the work of its former owner."""
    standstill_ms: int = 10 * MINUTE
    offsets_retention_ms: int = 7 * DAY
    """The brokers' offsets.retention.minutes; Kafka's default."""
    expiry_warning_ms: int = 2 * DAY
    behind_ms: int = 5 * MINUTE
    """A growing lag is a finding if it exceeds the records that are written in this time."""


def why_storm(rebalances: int, newcomers: int) -> str:
    """Why a group rebalances again and again, by the number of different members that came."""
    if newcomers >= rebalances // 2:
        return f"{newcomers} different members joined: restarts, or a rolling deployment"
    if newcomers:
        who = "the same member" if newcomers == 1 else f"the same {newcomers} members"
        return f"{who} came and went: sessions or polls time out"
    return "no member came or went: members rejoin or change their subscriptions"
