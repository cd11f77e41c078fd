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
    rejoin_gap_ms: int = 30 * MINUTE
    """A client that comes back again and again is a finding if its returns are at most so far apart."""
    saw_teeth: int = 3
    saw_gap_ms: int = 30 * MINUTE
    zombie_commits: int = 3
    """So many commits to a group without members are a zombie."""
    zombie_grace_ms: int = 10_000
    handover_ms: int = 10 * MINUTE
    """A sawtooth that begins within this time after a partition moved is the work of its former owner."""
    standstill_ms: int = 10 * MINUTE
    stuck_ms: int = 2 * MINUTE
    """A group without new commits is stuck after this time, or after ten of its usual intervals, if that is longer."""
    deserted_ms: int = 2 * MINUTE
    """A group without members is a finding after this time, if its lag grows."""
    offsets_retention_ms: int = 7 * DAY
    """The brokers' offsets.retention.minutes; Kafka's default."""
    expiry_warning_ms: int = 2 * DAY
    behind_ms: int = 5 * MINUTE
    """A growing lag is a finding if it exceeds the records that are written in this time."""


def why_storm(rebalances: int, newcomers: int, looping: str = "") -> str:
    """Why a group rebalances again and again, by the number of different members that came; `looping` says which client
    came again and again, and how often."""
    if looping:
        return f"{looping}: its sessions or polls time out, or it restarts"
    if newcomers >= rebalances // 2:
        return f"{newcomers} different members joined: restarts, or a rolling deployment"
    if newcomers:
        who = "the same member" if newcomers == 1 else f"the same {newcomers} members"
        return f"{who} came and went: they restart, or their sessions or polls time out"
    return "no member came or went: members rejoin or change their subscriptions"
