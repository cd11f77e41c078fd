"""The start of a query and the end of a batch read: turns the options' words, offsets and times into positions.

Offsets in JSON must name exactly the partitions that are read, as in Spark's source. A position outside of its log is
data loss; with failOnDataLoss=false it moves to the nearer end of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from kohort.client.metadata import TopicPartition
from kohort.spark.options.source import EARLIEST, LATEST, ByPartition, ByTimestamp, Where
from kohort.spark.options.values import OptionError
from kohort.spark.source.planner import Planner
from kohort.spark.source.positions import Positions

NO_RECORD = -1


def starting(planner: Planner, default: Literal["earliest", "latest"]) -> Positions:
    """Where the query starts, in every partition that it reads. Raises OptionError, DataLoss."""
    partitions = planner.partitions()
    where = planner.options.starting_or(default)
    if where == "group":
        return _of_group(planner, partitions)
    if isinstance(where, ByTimestamp):
        return _at_times(planner, where, partitions, None)
    return _resolve(planner, "startingOffsets", where, partitions, {})


def ending(planner: Planner, begin: Positions) -> Positions:
    """Where a read from `begin` ends. With read_committed, `begin` may be after the last stable offset."""
    where = planner.options.ending
    if isinstance(where, ByTimestamp):
        return _at_times(planner, where, list(begin), begin)
    return _resolve(planner, "endingOffsets", where, list(begin), begin)


def _resolve(
    planner: Planner, name: str, where: Where, partitions: list[TopicPartition], begin: Positions
) -> Positions:
    if not isinstance(where, dict):
        return planner.beginnings(partitions) if where == "earliest" else planner.ends_from(partitions, begin)
    given = _exactly(name, where, partitions)
    if any(offset < (LATEST if name == "endingOffsets" else EARLIEST) for offset in given.values()):
        marks = "-1 (latest)" if name == "endingOffsets" else "-1 (latest) or -2 (earliest)"
        raise OptionError(f"{name} takes offsets from 0 on, or {marks}")
    marked = {mark: [p for p, offset in given.items() if offset == mark] for mark in (LATEST, EARLIEST)}
    positions = _in_log(
        planner, {place: offset for place, offset in given.items() if offset >= 0}, f"{name} asks for offset"
    )
    return positions | planner.ends_from(marked[LATEST], begin) | planner.beginnings(marked[EARLIEST])


def _exactly(name: str, given: ByPartition, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The numbers by partition. Raises OptionError unless they are of exactly the partitions that are read."""
    flat = {(topic, index): number for topic, indexes in given.items() for index, number in indexes.items()}
    if set(flat) != set(partitions):
        raise OptionError(
            f"{name} must name every partition that is read and no other; they differ in "
            + _names(set(flat) ^ set(partitions))
        )
    return flat


def _at_times(
    planner: Planner, where: ByTimestamp, partitions: list[TopicPartition], begin: Positions | None
) -> Positions:
    """The first records at or after the times; `begin` is None for a start.

    If a partition has no such record, an end is the end of the log, and a start follows
    startingOffsetsByTimestampStrategy.
    """
    moments: Mapping[TopicPartition, int]
    if isinstance(where.at, int):
        moments = dict.fromkeys(partitions, where.at)
    else:
        moments = _exactly(where.option, where.at, partitions)
    positions = planner.at_times(moments)
    without = [place for place, offset in positions.items() if offset == NO_RECORD]
    if without and begin is None and planner.options.no_match == "error":
        raise OptionError(
            f"{where.option}: no record is at or after that time in {_names(without)} "
            "(startingOffsetsByTimestampStrategy=latest starts there at the end)"
        )
    return positions | planner.ends_from(without, begin or {})


def _of_group(planner: Planner, partitions: list[TopicPartition]) -> Positions:
    """The group's committed offsets; partitions without one start where startingOffsets says."""
    group_id, fallback = planner.options.group_id, planner.options.group_fallback
    positions = {place: entry.offset for place, entry in planner.committed(partitions).items()}
    positions = _in_log(planner, positions, f"the group {group_id} has committed offset")
    without = [place for place in partitions if place not in positions]
    if without and fallback == "fail":
        raise OptionError(f"the group {group_id} has no committed offset of {_names(without)}")
    return positions | (planner.ends(without) if fallback == "latest" else planner.beginnings(without))


def _in_log(planner: Planner, positions: Positions, whose: str) -> Positions:
    """The positions, each moved into its log; a position outside of its log is data loss.

    A position after the last stable offset is in the log, whatever the isolation level.
    """
    beginnings, ends = planner.beginnings(positions), planner.log_ends(positions)
    inside = {}
    for (topic, partition), offset in positions.items():
        first, last = beginnings[topic, partition], ends[topic, partition]
        if not first <= offset <= last:
            planner.lost(f"{whose} {offset} of {topic}-{partition}, but its log holds {first} to {last}")
        inside[topic, partition] = min(max(offset, first), last)
    return inside


def _names(partitions: Iterable[TopicPartition], most: int = 10) -> str:
    listed = sorted(partitions)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(f"{topic}-{index}" for topic, index in listed[:most]) + more
