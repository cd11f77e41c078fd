"""Writes decoded log records to the files of a history: for each log partition one of commits and one of groups."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.spark.history.store import HOLDS, Store, encoding


class RecordFiles(ExitStack):
    """The files of one dump, or of one piece of a log. They get their names when the block ends.

    `key` is the name of the files; files of the same name are replaced.
    """

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self._store, self._key = store, key
        self._writers: dict[str, pq.ParquetWriter] = {}
        self.records = 0
        self.written: list[str] = []

    def write(self, rows: pa.Table) -> None:
        """Add records, decoded and with the columns of `PLACE`."""
        self.records += rows.num_rows
        is_commit = pc.is_in(rows.column("kind"), pa.array([0, 1], pa.int16()))
        for holds, part in zip(HOLDS, (rows.filter(is_commit), rows.filter(pc.invert(is_commit))), strict=True):
            if holds == "commits":
                part = part.drop_columns(["members"])
            partitions = pc.unique(part.column("log_partition")).to_pylist()
            for partition in partitions:
                one = len(partitions) == 1
                mine = part if one else part.filter(pc.equal(part.column("log_partition"), partition))
                self._writer(holds, partition, mine.schema).write_table(mine)

    def _writer(self, holds: str, partition: int, schema: pa.Schema) -> pq.ParquetWriter:
        place = f"records/files/of={holds}/in={partition}/{self._key}.parquet"
        if place not in self._writers:
            out = self.enter_context((self._store / place).new_file())
            self._writers[place] = self.enter_context(pq.ParquetWriter(out, schema, **encoding(schema)))
            self.written.append(place)
        return self._writers[place]
