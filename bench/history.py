"""The history of groups out of ten million log records: decoding alone, to Parquet through Spark, and all of it.

The log is made up (`_offsets_log.py`): groups at work, and a storm, a zombie and a sawtooth in each partition of the
log. It lies in Parquet files with the columns of Spark's Kafka source, a file a partition. "decode → Parquet" is the
first step of `kohort pipeline history`: every worker reads a file, decodes it and writes typed columns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench._offsets_log import MINUTE, START, Log
from kohort.spark.arrow.columns import DECODER_VARIABLE

PARTITIONS = 8


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench history")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=2)
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        dump, ends = Path(folder) / "dump", Path(folder) / "ends.parquet"
        dump.mkdir()
        began = time.monotonic()
        records, size = write(dump, ends, chosen.records)
        print(
            f"a log of {records:,} records, {size / 1e6:,.0f} MB of Parquet, made in {time.monotonic() - began:.0f} s"
        )
        alone(dump)
        through_spark(dump, ends, Path(folder), records, chosen.cores)


def write(dump: Path, ends: Path, records: int) -> tuple[int, int]:
    """The dump's records and bytes."""
    written = 0
    known = []
    for partition in range(PARTITIONS):
        log = made_up(partition, records // PARTITIONS)
        table = log.table()
        written += table.num_rows
        pq.write_table(table, dump / f"part-{partition}.parquet")
        known.append(log.ends())
    pq.write_table(pa.concat_tables(known), ends)
    return written, sum(path.stat().st_size for path in dump.iterdir())


def made_up(partition: int, records: int) -> Log:
    """Forty groups of 24 partitions that commit every five seconds, for as long as it takes."""
    groups, width = 40, 24
    log = Log(records / (groups * width * 12), seed=partition + 1, partition=partition)
    for number in range(groups - 3):
        topic = log.topic(f"topic-{partition}-{number % 10}", width, 100.0)
        if number % 4:
            log.healthy(f"group-{partition}-{number}", topic, 6)
        else:
            log.modern(f"group-{partition}-{number}", topic, 6)
    topic = log.topic(f"topic-{partition}-0", width, 100.0)
    middle = (START + log.stop) / 2
    log.storm(f"storm-{partition}", topic, middle, 60)
    log.zombie(f"zombie-{partition}", topic, middle, 40)
    log.sawtooth(f"sawtooth-{partition}", topic, 3, middle - 5 * MINUTE, 40)
    return log


def alone(dump: Path) -> None:
    """Decoding in memory, on one core, both ways."""
    from kohort.spark.history.decoding.decode import decode

    table = pq.read_table(dump / "part-0.parquet", columns=["key", "value"]).combine_chunks()
    keys, values = table.column("key").chunk(0), table.column("value").chunk(0)
    before = os.environ.get(DECODER_VARIABLE)
    try:
        for name in ("numba", "python"):
            os.environ[DECODER_VARIABLE] = name
            decode(keys[:10], values[:10])
            best = min(_seconds(lambda: decode(keys, values, dictionaries=True)) for _ in range(3))
            shown = "numba" if name == "numba" else "numpy"
            print(f"  decode, {shown:6} {table.num_rows / best / 1e6:6.2f} M records/s on one core")
    finally:
        os.environ.pop(DECODER_VARIABLE)
        if before is not None:
            os.environ[DECODER_VARIABLE] = before


def _seconds(work: Callable[[], object]) -> float:
    """Of a core's time."""
    began = time.process_time()
    work()
    return time.process_time() - began


def through_spark(dump: Path, ends: Path, folder: Path, records: int, cores: int) -> None:
    from kohort.spark.history import history
    from kohort.spark.history.decoding.dumps import Input, inputs, take
    from kohort.spark.history.run import each
    from kohort.spark.history.store import Store
    from kohort.spark.runtime.session import spark_session

    session = spark_session("bench history", master=f"local[{cores}]")
    try:
        # The workers' first task imports what they need and reads what numba has kept.
        each(session, inputs([str(dump)])[:cores], lambda one: take(Store(f"{folder}/warm"), one, "read_committed"))
        for number in range(2):
            store = Store(f"{folder}/out-{number}")

            def timed(one: Input, store: Store = store) -> float:
                began = time.process_time()
                take(store, one, "read_committed")
                return time.process_time() - began

            began = time.monotonic()
            used = sum(each(session, inputs([str(dump)]), timed))
            took = time.monotonic() - began
            print(
                f"  decode → Parquet {records / took / 1e6:6.2f} M records/s on {cores} cores, {took:.1f} s; "
                f"{records / used / 1e6:.2f} M a second of a core's time"
            )
        steps: list[tuple[float, str]] = []
        began = time.monotonic()
        summary = history(
            session,
            output=folder / "whole",
            files=[str(dump)],
            ends=str(ends),
            on_progress=lambda text: steps.append((time.monotonic(), text)),
        )
        took = time.monotonic() - began
        print(f"  all of it        {records / took / 1e6:6.2f} M records/s on {cores} cores, {took:.1f} s:")
        for (at, text), (after, _) in zip(steps, [*steps[1:], (time.monotonic(), "")], strict=True):
            print(f"      {after - at:6.1f} s  {text}")
        kinds: dict[str, int] = {}
        for one in summary.findings:
            kinds[one.kind] = kinds.get(one.kind, 0) + 1
        print(f"  {summary.groups} groups, findings: {kinds}; {sum(summary.rows.values()):,} rows in the tables")
    finally:
        session.stop()
