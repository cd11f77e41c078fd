"""What is wrong with the groups, by the rules of `kohort groups doctor`, for the page Doctor.

An examination takes two surveys, two seconds apart, so a page shows the last one, and its stream brings the next one.
Of a large cluster the groups with the largest lag are examined. The second survey has stories, which can be large, so
it is made of a few groups at a time, and only the findings are kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kohort.cli.groups.doctor.app import findings_of
from kohort.cli.groups.doctor.case import Finding, worst_first
from kohort.cli.groups.doctor.collection import first_survey, second_survey
from kohort.client.admin.groups import ListedGroup
from kohort.client.admin.survey import Survey
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.console.reading.answers import Answers
from kohort.console.reading.batches import OTHER_TYPES, in_batches, weight_of
from kohort.console.reading.snapshot import GroupRow

APART_S = 2.0
EVERY_S = 15.0
"""The time from an examination to the next one, while a page is open."""
REST = 5
"""It is at least so many times as long as the surveys took."""
MOST_GROUPS = 200
AT_ONCE, MOST_WEIGHT = 20, 2_000
MOST_KEPT = 10


@dataclass(frozen=True, slots=True)
class Examined:
    findings: tuple[Finding, ...]
    groups: int
    """That were examined."""
    at_ms: int
    seconds: float
    """Between the surveys."""
    not_seen: tuple[str, ...]
    failure: str = ""


@dataclass(slots=True)
class _Kept:
    last: Examined | None = None
    task: asyncio.Task[None] | None = None
    due: float = 0.0


class Examinations:
    """For the event loop of the pages."""

    def __init__(self, answers: Answers, clock: Callable[[], float] = time.monotonic, apart_s: float = APART_S) -> None:
        self._answers = answers
        self._clock = clock
        self._apart_s = apart_s
        self._kept: dict[str, _Kept] = {}

    def look(self, key: str, groups: Sequence[GroupRow]) -> Examined | None:
        """The last examination of these groups, which `key` names; None before the first one has ended. The next one
        begins if it is due."""
        kept = self._kept.setdefault(key, _Kept())
        while len(self._kept) > MOST_KEPT and (idle := [one for one in self._kept if one != key]):
            self._kept.pop(idle[0])
        if kept.task is None and self._clock() >= kept.due:
            kept.task = asyncio.create_task(self._examine(kept, chosen(groups)))
        return kept.last

    async def _examine(self, kept: _Kept, rows: Sequence[GroupRow]) -> None:
        began = self._clock()
        try:
            kept.last = await self._examined(rows)
        except KafkaError as error:
            kept.last = Examined((), 0, int(time.time() * 1000), 0.0, (), error.message)
        finally:
            now = self._clock()
            kept.task, kept.due = None, now + max(EVERY_S, REST * (now - began - self._apart_s))

    async def _examined(self, rows: Sequence[GroupRow]) -> Examined:
        first = await self._answers.do(_first(rows))
        await asyncio.sleep(self._apart_s)
        findings: list[Finding] = []
        not_seen: dict[str, None] = {}
        seconds, groups = self._apart_s, 0
        for batch in in_batches(rows, weight_of, AT_ONCE, MOST_WEIGHT):
            found, count, apart_s, unseen = await self._answers.do(_second(first, batch))
            findings += found
            groups += count
            seconds = max(seconds, apart_s)
            not_seen |= dict.fromkeys(unseen)
        return Examined(tuple(worst_first(findings)), groups, int(time.time() * 1000), seconds, tuple(not_seen))


def _first(rows: Sequence[GroupRow]) -> Callable[[Cluster], Survey]:
    def ask(cluster: Cluster) -> Survey:
        cluster.nodes()  # a new client has not learned of the coordinators
        return first_survey(cluster, listed(rows))

    return ask


def _second(
    first: Survey, batch: Sequence[GroupRow]
) -> Callable[[Cluster], tuple[list[Finding], int, float, Sequence[str]]]:
    def ask(cluster: Cluster) -> tuple[list[Finding], int, float, Sequence[str]]:
        cluster.nodes()
        collected = second_survey(cluster, listed(batch), first)
        return findings_of(collected.cases), len(collected.cases), collected.seconds, collected.not_seen

    return ask


def listed(rows: Sequence[GroupRow]) -> list[ListedGroup]:
    return [ListedGroup(row.group_id, row.protocol_type, row.state, row.type, row.coordinator) for row in rows]


def chosen(rows: Sequence[GroupRow]) -> list[GroupRow]:
    """Those that are worth it most: which rebalance, and which have the largest lag."""
    known = [row for row in rows if row.type not in OTHER_TYPES]
    return sorted(known, key=lambda row: (row.state in ("Stable", "Empty"), -(row.lag or 0), row.group_id))[
        :MOST_GROUPS
    ]
