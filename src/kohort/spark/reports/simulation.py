"""Groups of many sizes and settings, simulated on a Spark cluster: one task for each point and seed.

    from kohort.simulator.sizing import Grid
    from kohort.spark.reports.simulation import simulate

    results = simulate(spark, Grid(members=(10, 100), patterns=("rolling",)).points(), seeds=range(5))

A row of the result is a run: the point, the seed, what was measured (docs/how-to/sizing.md), or why there are no
figures. Rows are in the order of the points, then of the seeds, and the same on any cluster, except for `cpu_ms` and
`state_bytes`.

Only this module and the reports of its results import the simulator, and with it the server side; see
docs/decisions/0009-spark-drives-the-simulator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints
from uuid import uuid4

from kohort.simulator.sizing import DidNotForm, Measures, Point, run
from kohort.simulator.sizing.point import FIELDS, normal
from kohort.spark.runtime.failures import cause

POLL_S = 0.2

MEASURES: dict[str, type] = get_type_hints(Measures)
"""Name of a measure: its type."""


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    """Finished runs."""
    of: int


class SimulationFailed(RuntimeError):
    """The job failed; the message is Spark's."""


class Stopped(Exception):
    """`stop` has ended the simulation."""


def schema() -> Any:
    """The pyarrow schema of the result."""
    import pyarrow as pa

    arrow = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    point = [pa.field(name, arrow[kind], nullable=False) for name, kind in FIELDS.items()]
    measures = [pa.field(name, arrow[kind]) for name, kind in MEASURES.items()]
    return pa.schema(
        [
            pa.field("run", pa.int64(), nullable=False),
            pa.field("label", pa.string(), nullable=False),
            *point,
            pa.field("seed", pa.int64(), nullable=False),
            *measures,
            pa.field("error", pa.string()),
        ]
    )


def simulate(
    spark: Any,
    points: Sequence[Point],
    *,
    seeds: Sequence[int] = (0, 1),
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Any:
    """Run every point with every seed. Returns a pyarrow table with the columns of `schema`.

    `on_progress` and `stop` are called every POLL_S seconds; when `stop` returns true, the job is cancelled and Stopped
    is raised. Raises BadPoint before anything runs, and SimulationFailed.
    """
    import pyarrow as pa

    runs = [(number, normal(point), seed) for number, (point, seed) in enumerate((p, s) for p in points for s in seeds)]
    if not runs:
        return schema().empty_table()
    table = _collected(spark, _frame(spark, runs), len(runs), on_progress, stop)
    return pa.table(table).cast(schema()).sort_by("run")


def _frame(spark: Any, runs: Sequence[tuple[int, Point, int]]) -> Any:
    """A DataFrame with one partition, and so one task, for each run; the largest run first."""
    from pyspark.sql.pandas.types import from_arrow_schema

    order = sorted(runs, key=lambda entry: -entry[1].members * entry[1].groups)

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist([row_of(*order[index])], schema())

    return spark.range(0, len(order), 1, numPartitions=len(order)).mapInArrow(rows, from_arrow_schema(schema()))


def row_of(number: int, point: Point, seed: int) -> dict[str, Any]:
    """Simulate one run; returns its row."""
    row: dict[str, Any] = {"run": number, "label": point.label(), **asdict(point), "seed": seed}
    try:
        return {**row, **asdict(run(point, seed)), "error": None}
    except DidNotForm as error:
        return {**row, **dict.fromkeys(MEASURES), "error": str(error)}


def _collected(
    spark: Any, frame: Any, runs: int, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool]
) -> Any:
    from pyspark import InheritableThread

    context = spark.sparkContext
    group = f"kohort-simulate-{uuid4()}"
    outcome: list[Any] = []

    def collect() -> None:
        context.setJobGroup(group, "kohort pipeline simulate", interruptOnCancel=True)
        try:
            outcome.append(frame.toArrow())
        except Exception as error:
            outcome.append(error)

    # Job groups belong to threads, so this one gets a thread of the JVM of its own.
    collecting = InheritableThread(target=collect, name="kohort-simulate", daemon=True)
    collecting.start()
    reported = -1
    stopping = False
    while collecting.is_alive():
        collecting.join(POLL_S)
        done = _done(context, group)
        if on_progress is not None and done > reported:
            reported = done
            on_progress(Progress(min(done, runs), runs))
        stopping = stopping or stop()
        if stopping:
            context.cancelJobGroup(group)  # again and again: the job may not have begun yet
    [result] = outcome
    if stopping:
        raise Stopped
    if isinstance(result, Exception):
        raise SimulationFailed(cause(result)) from result
    return result


def _done(context: Any, group: str) -> int:
    """The finished tasks of the job group."""
    tracker = context.statusTracker()
    done = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = tracker.getStageInfo(stage)
            done += found.numCompletedTasks if found is not None else 0
    return done


def write(spark: Any, table: Any, directory: str) -> None:
    """The table as Parquet, one file in the table's order, in a directory that Spark knows. Raises SimulationFailed."""
    try:
        spark.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(directory)
    except Exception as error:
        raise SimulationFailed(cause(error)) from error
