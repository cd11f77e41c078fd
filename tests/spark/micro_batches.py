"""A streaming query as Spark runs it, without Spark: its logs, its calls of the source, its replay after a restart.

    python micro_batches.py SERVERS GROUP DIRECTORY [OPTION=VALUE ...]

While DIRECTORY/hold is there, a batch that is planned does not run. DIRECTORY/stop ends the process.

A batch's rows are a file of the sink, written before the commit log says that the batch is done. A process that is
killed leaves its logs, and the next one on the same directory goes on from there (Spark's MicroBatchExecution).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kohort.client.metadata import TopicPartition
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.options.source import for_stream
from kohort.spark.source.checkpoint import last_finished, last_planned
from kohort.spark.source.member.reader import KohortMemberReader

Row = tuple[str, int, int]
"""Topic, partition, offset."""


class Query:
    """`rows` are the rows of the sink. `pause` is called between the planning of a batch and its run."""

    def __init__(self, directory: Path, options: dict[str, str], pause: Callable[[], None] | None = None) -> None:
        self.directory = directory
        self.reader = KohortMemberReader(for_stream({**options, "checkpointLocation": str(directory)}))
        self.pause = pause or (lambda: None)
        most = options.get("maxOffsetsPerTrigger")
        self.limit = ReadMaxRows(int(most)) if most else ReadAllAvailable()
        for name in ("offsets", "commits", "sink"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        planned = last_planned(ArrowDirectory(directory))
        self.batch = -1 if planned is None else planned
        if planned is not None:
            self.end = self._offsets(planned)
            if unfinished(directory) is not None:
                start = self._offsets(self.batch - 1) if self.batch else self.reader.initialOffset()
                self._run(start)
        else:
            self.end = self.reader.initialOffset()

    def step(self) -> bool:
        """A trigger. True if a batch was run."""
        start = self.end
        end = self.reader.latestOffset(start, self.limit)
        if end == start:
            return False
        self.end = json.loads(json.dumps(end))
        self.batch += 1
        self._write(f"offsets/{self.batch}", f"v1\n{{}}\n{json.dumps(end)}")
        if self.batch:
            self.reader.commit(start)
        self._run(start)
        return True

    def fall_silent(self) -> None:
        """End the member's threads without leaving the group, as the death of the process does."""
        assert self.reader.membership is not None
        self.reader.membership._consumer._thread.end("kill", _nothing)

    def _run(self, start: Any) -> None:
        self.pause()
        runs = []
        for task in self.reader.partitions(start, self.end):
            for block in self.reader.read(task):
                offsets = block.column("offset").to_pylist()
                assert offsets == list(range(offsets[0], offsets[-1] + 1))
                assert block.column("topic").unique().to_pylist() == [task.topic]
                assert block.column("partition").unique().to_pylist() == [task.partition]
                runs.append((task.topic, task.partition, offsets[0], offsets[-1]))
        self._write(f"sink/{self.batch}", json.dumps(runs))
        self._write(f"commits/{self.batch}", "v1\n{}")

    def _write(self, name: str, text: str) -> None:
        path = self.directory / name
        part = path.with_name(f".{path.name}")
        part.write_text(text)
        part.rename(path)

    def _offsets(self, batch: int) -> Any:
        return json.loads((self.directory / "offsets" / str(batch)).read_text().splitlines()[2])


class Running(threading.Thread):
    """A query in a thread, until it is stopped."""

    def __init__(self, query: Query) -> None:
        super().__init__(daemon=True)
        self.query = query
        self.failure: BaseException | None = None
        self.done = threading.Event()
        self.start()

    @property
    def mine(self) -> set[TopicPartition]:
        """The partitions that the query reads."""
        membership = self.query.reader.membership
        if membership is None:
            return set()
        with membership.locked() as sharing:
            return set(sharing.places) & set(membership.owned)

    @property
    def leaving(self) -> set[TopicPartition]:
        """The partitions that the query is to give up."""
        assert self.query.reader.membership is not None
        with self.query.reader.membership.locked() as sharing:
            return set(sharing.leaving)

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self.query.step()
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self.done.set()
        self.join(30)
        assert not self.is_alive()
        self.query.reader.stop()
        if self.failure is not None:
            raise self.failure


def until(condition: Callable[[], Any], what: str = "", seconds: float = 60) -> Any:
    """The result of the condition when it was true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never: {what or condition}"
        time.sleep(0.01)
    return found


def unfinished(directory: Path) -> int | None:
    """The batch that is planned and not finished."""
    place = ArrowDirectory(directory)
    planned = last_planned(place)
    return None if planned == last_finished(place) else planned


def rows(directory: Path) -> list[Row]:
    """The content of a query's sink."""
    files = [path for path in (directory / "sink").iterdir() if path.name.isdigit()]
    runs = [run for path in files for run in json.loads(path.read_text())]
    return [(topic, index, offset) for topic, index, first, last in runs for offset in range(first, last + 1)]


def main(servers: str, group: str, directory: str, *settings: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "group.id": group, "groupMode": "member"}
    hold, stop = Path(directory, "hold"), Path(directory, "stop")

    def pause() -> None:
        while hold.exists() and os.getppid() != 1:
            time.sleep(0.01)

    query = Query(Path(directory), options | dict(setting.split("=", 1) for setting in settings), pause)
    while not stop.exists() and os.getppid() != 1:
        query.step()
    query.reader.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])


async def _nothing() -> None:
    pass
