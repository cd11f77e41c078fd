"""`__consumer_offsets` out of files: dumps in Parquet, and the segment files of a broker.

- Parquet with the columns of Spark's Kafka source: key, value, partition, offset, timestamp. One task a file.
- Segments (`__consumer_offsets-12/00000000000000000000.log`): record batches one behind the other. One task a
  directory, because a transaction may go over the end of a segment: its records count when its marker says so. If
  other topics' directories lie beside them, the names of topics that records have by id are read there.

A task reads, decodes and writes by itself; nothing goes through the JVM. What came out of an input has the input's
name, and a note says which state of the input it was: an input that has not changed is not read again, and one that has
takes the place of what it had given.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from kohort.spark.arrow.columns import Columns, timestamps
from kohort.spark.arrow.decoder import filler
from kohort.spark.history.decoding.decode import decode
from kohort.spark.history.store import OF, Store, encoding, filesystem
from kohort.wire.batches import HEADER_SIZE, BatchHeader, check_crc, decode_records, read_header
from kohort.wire.compression import decompress
from kohort.wire.errors import ProtocolError

NEEDED = ("key", "value", "partition", "offset", "timestamp")
BATCH = 500_000
"""Rows that are decoded at once."""
ABORT = 0
_DIRECTORY = re.compile(r"__consumer_offsets-(\d+)$")


class DumpError(ValueError):
    """A file that is no dump; the message names it."""


@dataclass(frozen=True, slots=True)
class Input:
    """What one task reads: a Parquet file, or the segments of a partition."""

    name: str
    files: tuple[str, ...]
    state: str
    """Sizes and times of change."""
    partition: int | None = None
    """Of segments; Parquet says it in each row."""

    @property
    def key(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]


@dataclass(slots=True)
class Taken:
    """What a task has written."""

    name: str
    records: int = 0
    aborted: int = 0
    """Records of transactions that were aborted; left out."""
    open: int = 0
    """Records of transactions without an end, likewise."""
    files: list[str] = field(default_factory=list)


def inputs(places: list[str]) -> list[Input]:
    """What there is in files and directories. Raises DumpError where there is nothing, or something else."""
    found: list[Input] = []
    for place in places:
        system, path = filesystem(place)
        prefix = place[: len(place) - len(path)] if place.endswith(path) else ""
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise DumpError(f"{place}: no such file or directory")
        files = [info] if info.type == fs.FileType.File else system.get_file_info(fs.FileSelector(path, recursive=True))
        files = sorted((one for one in files if one.type == fs.FileType.File), key=lambda one: one.path)
        here = [*_parquet(files, prefix), *_segments(files, prefix)]
        if not here:
            raise DumpError(f"{place}: neither Parquet files nor __consumer_offsets-N/*.log in it")
        found += here
    return found


def topic_names(places: list[str]) -> dict[bytes, str]:
    """Names by topic id, out of the files `partition.metadata` that a broker keeps in its partitions' directories."""
    names: dict[bytes, str] = {}
    for place in places:
        system, path = filesystem(place)
        if system.get_file_info(path).type != fs.FileType.Directory:
            continue
        for one in system.get_file_info(fs.FileSelector(path, recursive=True)):
            directory = one.path.rpartition("/")[0].rpartition("/")[2]
            if one.base_name == "partition.metadata":
                with system.open_input_stream(one.path) as file:
                    found = re.search(rb"^topic_id: *([\w-]{22})\s*$", file.read(4096), re.MULTILINE)
                if found is not None:
                    names[base64.urlsafe_b64decode(found[1] + b"==")] = directory.rpartition("-")[0]
    return names


def _parquet(files: list[fs.FileInfo], prefix: str) -> list[Input]:
    return [
        Input(prefix + one.path, (prefix + one.path,), _state([one]))
        for one in files
        if one.path.endswith(".parquet") and not one.base_name.startswith(("_", "."))
    ]


def _segments(files: list[fs.FileInfo], prefix: str) -> list[Input]:
    directories: dict[str, list[fs.FileInfo]] = {}
    for one in files:
        directory = one.path.rpartition("/")[0]
        if one.path.endswith(".log") and _DIRECTORY.search(directory):
            directories.setdefault(directory, []).append(one)
    return [
        Input(
            prefix + directory,
            tuple(prefix + one.path for one in segments),
            _state(segments),
            int(_DIRECTORY.search(directory)[1]),  # type: ignore[index]
        )
        for directory, segments in directories.items()
    ]


def _state(files: list[fs.FileInfo]) -> str:
    return ";".join(f"{one.base_name}:{one.size}:{one.mtime_ns}" for one in files)


def take(store: Store, wanted: Input, isolation: str) -> Taken:
    """Decode an input into the records of the history. Does nothing where that has been done. Raises DumpError."""
    note = f"records/files/notes/{wanted.key}.json"
    state = f"{isolation};{wanted.state}"
    before = store.read_json(note)
    if before is not None and before["state"] == state:
        return Taken(**before["taken"])
    taken = Taken(wanted.name)
    with _Writer(store, wanted.key, taken) as writer:
        if wanted.partition is None:
            for batch in _read_parquet(wanted.files[0]):
                writer.write(batch)
        else:
            for columns in _read_segments(wanted, isolation, taken):
                writer.write(_decoded(columns, wanted.partition))
    for file in set(before["taken"]["files"]) - set(taken.files) if before is not None else ():
        store.delete(file)
    store.write_text(note, json.dumps({"state": state, "taken": {n: getattr(taken, n) for n in Taken.__slots__}}))
    return taken


def _read_parquet(file: str) -> Iterator[pa.Table]:
    system, path = filesystem(file)
    try:
        opened = pq.ParquetFile(system.open_input_file(path))
    except pa.ArrowInvalid as error:
        raise DumpError(f"{file}: {error}") from None
    missing = [name for name in NEEDED if name not in opened.schema_arrow.names]
    if missing:
        raise DumpError(
            f"{file} lacks {', '.join(missing)}: a dump has the columns of Spark's Kafka source ({', '.join(NEEDED)})"
        )
    for batch in opened.iter_batches(batch_size=BATCH, columns=list(NEEDED)):
        yield pa.table(
            {
                **_columns(decode(batch.column("key"), batch.column("value"), dictionaries=True)),
                "log_partition": batch.column("partition").cast(pa.int32()),
                "log_offset": batch.column("offset").cast(pa.int64()),
                "log_time": _time(batch.column("timestamp")),
            }
        )


def _time(column: pa.Array) -> pa.Array:
    if pa.types.is_integer(column.type):
        return timestamps(column.cast(pa.int64()))
    return column.cast(pa.timestamp("us", tz="UTC"), safe=False)


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(number) for number, name in enumerate(batch.schema.names)}


def _decoded(columns: Columns, partition: int) -> pa.Table:
    return pa.table(
        {
            **_columns(decode(columns.keys, columns.values, dictionaries=True)),
            "log_partition": pa.repeat(pa.scalar(partition, pa.int32()), len(columns.offsets)),
            "log_offset": columns.offsets,
            "log_time": timestamps(columns.times),
        }
    )


class _Writer:
    """The files of one input: for each log partition one of commits and one of groups."""

    def __init__(self, store: Store, key: str, taken: Taken) -> None:
        self._store, self._key, self._taken = store, key, taken
        self._open: dict[str, tuple[pq.ParquetWriter, fs.FileSystem, str]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Writer:
        return self

    def write(self, rows: pa.Table) -> None:
        self._taken.records += rows.num_rows
        is_commit = pc.is_in(rows.column("kind"), pa.array([0, 1], pa.int16()))
        for of, part in zip(OF, (rows.filter(is_commit), rows.filter(pc.invert(is_commit))), strict=True):
            partitions = pc.unique(part.column("log_partition")).to_pylist()
            if of == "commits":
                part = part.drop_columns(["members"])
            for partition in partitions:
                mine = part
                if len(partitions) > 1:
                    mine = part.filter(pc.equal(part.column("log_partition"), partition))
                self._writer(of, partition, mine.schema).write_table(mine)

    def _writer(self, of: str, partition: int, schema: pa.Schema) -> pq.ParquetWriter:
        place = f"records/files/of={of}/in={partition}/{self._key}.parquet"
        if place not in self._open:
            system, path = filesystem(f"{self._store.root}/{place}")
            system.create_dir(path.rpartition("/")[0], recursive=True)
            out = self._stack.enter_context(system.open_output_stream(f"{path}.partial"))
            writer = pq.ParquetWriter(out, schema, **encoding(schema))
            self._open[place] = writer, system, path
            self._taken.files.append(place)
        return self._open[place][0]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for writer, _, _ in self._open.values():
            writer.close()
        self._stack.close()
        for _, system, path in self._open.values():
            if kind is None:
                system.move(f"{path}.partial", path)
            else:
                system.delete_file(f"{path}.partial")


# -- segments


def _read_segments(wanted: Input, isolation: str, taken: Taken) -> Iterator[Columns]:
    data = []
    for file in wanted.files:
        system, path = filesystem(file)
        with system.open_input_stream(path) as opened:
            data.append(opened.read())
    batches = [
        (file, header, batch)
        for file, held in zip(wanted.files, data, strict=True)
        for header, batch in _batches(file, held)
    ]
    ended = _ends(wanted.name, [(header, batch) for _, header, batch in batches])
    expected = sum(header.record_count for _, header, _ in batches)
    columns = filler(expected, False)
    for file, header, batch in batches:
        if header.is_control or not header.record_count:
            continue
        if header.is_transactional and isolation == "read_committed":
            aborted = ended.get((header.producer_id, header.base_offset))
            if aborted is None:
                taken.open += header.record_count
                continue
            if aborted:
                taken.aborted += header.record_count
                continue
        try:
            records = decompress(header.compression, batch[HEADER_SIZE : header.size])
            yield from columns.take(header, records, 0, 2**63 - 1)
        except ProtocolError as error:
            raise DumpError(f"{file}: the batch at offset {header.base_offset}: {error}") from None
    rest = columns.flush()
    if rest is not None:
        yield rest


def _batches(file: str, data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a segment. Behind the last one a running broker has zeros, or half of a batch: the end."""
    at = 0
    while len(data) - at >= HEADER_SIZE and any(data[at : at + 12]):
        try:
            header = read_header(data, at)
            batch = data[at : at + header.size]
            if len(batch) < header.size:
                return
            if not check_crc(batch, header):
                raise ProtocolError("the checksum does not match")
        except ProtocolError as error:
            raise DumpError(f"{file}: at byte {at}: {error}") from None
        yield header, batch
        at += header.size


def _ends(name: str, batches: list[tuple[BatchHeader, bytes]]) -> dict[tuple[int, int], bool]:
    """Of each transactional batch, by producer and offset, whether it was aborted; nothing for open transactions."""
    running: dict[int, list[int]] = {}
    ended: dict[tuple[int, int], bool] = {}
    for header, batch in batches:
        if header.is_control:
            try:
                key = next((record.key for record in decode_records(batch, header)), None)
            except ProtocolError as error:
                raise DumpError(f"{name}: the marker at offset {header.base_offset}: {error}") from None
            for offset in running.pop(header.producer_id, ()):
                ended[header.producer_id, offset] = key is not None and int.from_bytes(key[2:4], "big") == ABORT
        elif header.is_transactional:
            running.setdefault(header.producer_id, []).append(header.base_offset)
    return ended
