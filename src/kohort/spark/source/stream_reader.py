"""A streaming read that starts from its group's offsets and commits to them what Spark has finished.

Spark (4.2 and later) calls the planning methods (initialOffset, latestOffset, partitions, commit) in one long-lived
Python process for each query. `read` runs in the executors' Python workers, on a pickled copy with the options alone.

When to commit. Spark calls `commit(end)` only while it builds the next batch that is not empty, so never for the last
batch of an availableNow run. But it calls `latestOffset(start, …)` after each batch, the last one included, when its
commit log contains `start`: so `latestOffset` commits `start` to the group.

With asynchronous progress tracking the commit log may not contain `start` yet, so such a query is refused. It shows by
Spark planning the tasks of a batch without having called `commit` for the batch before.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from kohort.spark.options.source import Options
from kohort.spark.options.values import OptionError
from kohort.spark.source import bounds
from kohort.spark.source.commits import LAST_COMMIT_MS, Commits
from kohort.spark.source.pacing import PacedReader
from kohort.spark.source.planner import Planner
from kohort.spark.source.positions import BATCH, START, Json, Positions, admit, from_json, to_json, with_ids
from kohort.spark.source.tasks import tasks_of
from kohort.spark.source.termination import call_at_sigterm


class KohortStreamReader(PacedReader):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._commits = Commits(options)
        self._initial: Positions | None = None
        self._restarted = True
        """True until this process has compared the topics' ids with those in the checkpoint."""
        self._target_checked = False
        """True once the target was compared with what the query has reached."""
        self._planned: tuple[Json, Positions] | None = None
        """The end of the newest batch, and where its partitions begin."""

    @property
    def planner(self) -> Planner:
        if self._planner is None and self._options.group_id is not None:
            call_at_sigterm(self._commits.finish, 3 * LAST_COMMIT_MS / 1000)
        return super().planner

    # -- offsets

    def initialOffset(self) -> Json:
        if self._initial is None:
            self._initial = bounds.starting(self.planner, "latest")
        return to_json(self._initial)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        if BATCH in start:
            raise OptionError(
                "this checkpoint is of a query with groupMode=member, and does not hold the positions of all "
                "partitions. Continue with groupMode=member, or start a new checkpoint at the group's committed offsets"
            )
        reached = from_json(start)
        first = START not in start and reached == self._initial
        if not first:
            self._commit_reached(start)
        self.planner.expect(start)
        ends = self._ends(reached)
        recreated = self.planner.take_recreated()
        lost = self._report_lost(reached, ends, recreated)
        begin = self._begin(reached, ends, recreated)
        lost |= self.planner.report_unread(reached, begin, ends)
        ends = {place: offset for place, offset in ends.items() if place in begin}
        self._latest = ends
        if not lost and self._too_few(begin, ends, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = admit(begin, ends, limit.max_rows)
        if ends == reached and not (recreated or first):
            return start  # the same JSON: Spark takes anything else for a new batch
        self._batch_planned(first=first)
        end = to_json(ends)
        if first or any(begin[place] != reached.get(place, begin[place]) for place in ends):
            end[START] = to_json({place: begin[place] for place in ends})
        end = with_ids(end, self.planner.ids)
        self._planned = (end, begin)
        self._commits.planned = end
        return end

    def reportLatestOffset(self) -> Json:
        if not self._latest:
            # A restarted query repeats its last batch, and reports it, before it asks for new offsets.
            self._latest = self._target or self.planner.all_ends()
        return to_json(self._latest)

    def _commit_reached(self, end: Json) -> None:
        """Commit what Spark has finished; after a restart, only of topics that still have the ids in the checkpoint."""
        others = set()
        if self._restarted and self._options.group_id is not None:
            others = self.planner.recreated_since(end)
        self._restarted = False
        self._commits.commit({place: offset for place, offset in from_json(end).items() if place[0] not in others})

    def _ends(self, reached: Positions) -> Positions:
        """The ends of the logs now, or at the beginning of an availableNow run."""
        if self._target is not None:
            if not self._target_checked:
                self._check_target(self._target, reached)
            return dict(self._target)
        self._wait_while_idle()
        return self.planner.ends_from(self.planner.partitions({topic for topic, _ in reached}), reached)

    def _check_target(self, target: Positions, reached: Positions) -> None:
        """Ask again for ends that are before what the query has reached.

        Raises OptionError for a missing topic that the query never reached.
        """
        existing = set(self.planner.partitions({topic for topic, _ in reached}))
        shorter = [p for p, offset in target.items() if offset < reached.get(p, offset) and p in existing]
        target.update(self.planner.ends_from(shorter, reached))
        self._target_checked = True

    def _begin(self, reached: Positions, until: Positions, recreated: set[str]) -> Positions:
        """Where the batch begins.

        New partitions, and those of a recreated topic, begin at their first offset. A log that has become shorter
        begins at its end, as in Spark's source, since the query has read most of it.
        """
        anew = [place for place in until if place not in reached or place[0] in recreated]
        shorter = {place: until[place] for place in until.keys() & reached.keys() if until[place] < reached[place]}
        return reached | shorter | self.planner.existing_beginnings(anew)

    def _report_lost(self, reached: Positions, ends: Positions, recreated: set[str]) -> bool:
        """True if records that the query had reached are lost. Raises DataLoss."""
        lost = False
        for topic, index in sorted(set(reached) - set(ends)):
            gone = "is gone" if self.planner.includes(topic, index) else "is not selected by the options any more"
            self.planner.lost(f"{topic}-{index} {gone}; the query had reached its offset {reached[topic, index]}")
            lost = True
        for (topic, index), offset in ends.items():
            before = reached.get((topic, index), 0)
            if topic in recreated:
                if before:
                    what = f"{topic} was deleted and created again; the query had reached offset {before} of "
                    self.planner.lost(f"{what}partition {index}")
                lost = True
            elif offset < before:
                self.planner.lost(
                    f"{topic}-{index} ends at offset {offset}, below {before}, which the query has reached: its log "
                    f"was truncated, or it was deleted and created again. The query continues at {offset}"
                )
                lost = True
        return lost

    # -- tasks

    def partitions(self, start: Json, end: Json) -> Any:
        if start != end:
            self._check_commit_called()
        if self._planned is not None and self._planned[0] == end:
            begin = self._planned[1]
            ranges = {place: (begin[place], offset) for place, offset in from_json(end).items()}
        else:
            ranges = self.planner.repeated(start, end)
        return tasks_of(self._options, ranges, self._commits.reply_to())

    # -- the group

    def commit(self, end: Json) -> None:
        self._commit_expected = False
        self._commits.commit(from_json(end))

    def stop(self) -> None:
        self._commits.finish()
        self._commits.close()
        super().stop()
