"""Dumps of `__consumer_offsets`: Parquet files, and the segment files of a broker.

- Parquet with the columns of Spark's Kafka source: key, value, partition, offset, timestamp. One task for each file.
- Segments (`__consumer_offsets-12/00000000000000000000.log`): record batches, one after the other. One task for each
  directory, because a transaction can span segments: its records count if its marker is a commit. The directories of
  other topics beside them give the names of topic ids.

The files that a task writes are named after the dump, and a note keeps the dump's state (sizes and times). A dump that
has not changed is not read again; the files of a changed dump are replaced.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kohort.spark.arrow.columns import Columns, timestamps
from kohort.spark.arrow.decoder import filler
from kohort.spark.files.arrow import file_system
from kohort.spark.history.decoding.columns import TIME
from kohort.spark.history.decoding.decode import decode
from kohort.spark.history.decoding.record_files import RecordFiles
from kohort.spark.history.store import Store
from kohort.spark.source.read import PLACE
from kohort.wire.batches import HEADER_SIZE, BatchHeader, check_crc, decode_records, read_header
from kohort.wire.compression import decompress
from kohort.wire.errors import ProtocolError

NEEDED = ("key", "value", "partition", "offset", "timestamp")
BATCH = 500_000
"""Rows that are decoded at once."""
ABORT = 0  # the type of a control record
_DIRECTORY = re.compile(r"__consumer_offsets-\d+$")


class DumpError(ValueError):
    """A file is not a dump; the message names it."""


@dataclass(frozen=True, slots=True)
class Dump:
    """The input of one task: a Parquet file, or the segments of a partition."""

    name: str
    files: tuple[str, ...]
    state: str
    """Sizes and times of change."""
    partition: int | None = None
    """The partition of the segments; a Parquet file has it in each row."""

    @property
    def key(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]


@dataclass(slots=True)
class ImportedDump:
    """The result of a task."""

    name: str
    records: int = 0
    aborted: int = 0
    """Records of aborted transactions, which are left out."""
    open: int = 0
    """Records of transactions without an end, which are left out."""
    files: list[str] = field(default_factory=list)


def find_dumps(places: Sequence[str]) -> list[Dump]:
    """The dumps in files and directories. Raises DumpError if there are none."""
    found: list[Dump] = []
    for place in places:
        system, path = file_system(place)
        prefix = place[: len(place) - len(path)] if place.endswith(path) else ""
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise DumpError(f"{place}: no such file or directory")
        files = [info] if info.type == fs.FileType.File else system.get_file_info(fs.FileSelector(path, recursive=True))
        files = sorted((one for one in files if one.type == fs.FileType.File), key=lambda one: one.path)
        here = [*_parquet(files, prefix), *_segments(files, prefix)]
        if not here:
            raise DumpError(f"{place}: contains neither Parquet files nor __consumer_offsets-N/*.log")
        found += here
    return found


def topic_names(places: Sequence[str]) -> dict[bytes, str]:
    """Names by topic id, from the files `partition.metadata` in the directories of a broker's partitions."""
    names: dict[bytes, str] = {}
    for place in places:
        system, path = file_system(place)
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


def _parquet(files: list[fs.FileInfo], prefix: str) -> list[Dump]:
    return [
        Dump(prefix + one.path, (prefix + one.path,), _state([one]))
        for one in files
        if one.path.endswith(".parquet") and not one.base_name.startswith(("_", "."))
    ]


def _segments(files: list[fs.FileInfo], prefix: str) -> list[Dump]:
    directories: dict[str, list[fs.FileInfo]] = {}
    for one in files:
        directory = one.path.rpartition("/")[0]
        if one.path.endswith(".log") and _DIRECTORY.search(directory):
            directories.setdefault(directory, []).append(one)
    return [
        Dump(prefix + place, tuple(prefix + one.path for one in ones), _state(ones), int(place.rpartition("-")[2]))
        for place, ones in directories.items()
    ]


def _state(files: list[fs.FileInfo]) -> str:
    return ";".join(f"{one.base_name}:{one.size}:{one.mtime_ns}" for one in files)


BYTES_A_RECORD = 100
"""Of a segment, about."""


def about_records(dumps: Sequence[Dump]) -> int:
    """How many records dumps have, about, without reading them. Raises DumpError."""
    found = 0
    for dump in dumps:
        for file in dump.files:
            system, path = file_system(file)
            if dump.partition is not None:
                found += (system.get_file_info(path).size or 0) // BYTES_A_RECORD
                continue
            try:
                found += pq.ParquetFile(system.open_input_file(path)).metadata.num_rows
            except pa.ArrowInvalid as error:
                raise DumpError(f"{file}: {error}") from None
    return found


def import_dump(store: Store, dump: Dump, isolation: str) -> ImportedDump:
    """Decode a dump into records of the history, unless an earlier run has done it. Raises DumpError."""
    note = store / f"records/files/notes/{dump.key}.json"
    state = f"{isolation};{dump.state}"
    before = json.loads(note.read_text()) if note.exists() else None
    if before is not None and before["state"] == state:
        return ImportedDump(**before["taken"])
    imported = ImportedDump(dump.name)
    with RecordFiles(store, dump.key) as files:
        if dump.partition is None:
            for batch in _read_parquet(dump.files[0]):
                files.write(batch)
        else:
            for columns in _read_segments(dump, isolation, imported):
                partitions = pa.repeat(pa.scalar(dump.partition, pa.int32()), len(columns.offsets))
                times = timestamps(columns.times)
                files.write(_decoded(columns.keys, columns.values, partitions, columns.offsets, times))
    imported.records, imported.files = files.records, files.written
    for file in set(before["taken"]["files"]) - set(imported.files) if before is not None else ():
        (store / file).remove()
    note.write_text(json.dumps({"state": state, "taken": asdict(imported)}))
    return imported


def _read_parquet(file: str) -> Iterator[pa.Table]:
    system, path = file_system(file)
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
        keys, values, partitions, offsets, times = (batch.column(name) for name in NEEDED)
        is_number = pa.types.is_integer(times.type)
        at = timestamps(times.cast(pa.int64())) if is_number else times.cast(TIME, safe=False)
        yield _decoded(keys, values, partitions.cast(pa.int32()), offsets.cast(pa.int64()), at)


def _decoded(keys: pa.Array, values: pa.Array, partitions: pa.Array, offsets: pa.Array, times: pa.Array) -> pa.Table:
    decoded = decode(keys, values, dictionaries=True)
    names = [*decoded.schema.names, *(place.name for place in PLACE)]
    return pa.table([*decoded.columns, partitions, offsets, times], names)


# -- segments


def _read_segments(dump: Dump, isolation: str, imported: ImportedDump) -> Iterator[Columns]:
    data = []
    for file in dump.files:
        system, path = file_system(file)
        with system.open_input_stream(path) as opened:
            data.append(opened.read())
    batches = [
        (file, header, batch)
        for file, held in zip(dump.files, data, strict=True)
        for header, batch in _batches(file, held)
    ]
    ended = _ends(dump.name, [(header, batch) for _, header, batch in batches])
    expected = sum(header.record_count for _, header, _ in batches)
    columns = filler(expected, False)
    for file, header, batch in batches:
        if header.is_control or not header.record_count:
            continue
        if header.is_transactional and isolation == "read_committed":
            aborted = ended.get((header.producer_id, header.base_offset))
            if aborted is None:
                imported.open += header.record_count
                continue
            if aborted:
                imported.aborted += header.record_count
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
    """The batches of a segment. Behind the last one a running broker's file has zeros or half of a batch."""
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
    """Whether each transactional batch, by producer and offset, was aborted. Open transactions are left out."""
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
