"""A lake of plain Parquet files. Every micro-batch enters it exactly once, for any reader.

A file counts if it is in its directory. A batch is written in three steps, for rows and dead letters together:

    stage     Spark writes the files below `_kohort/`, which readers of partitioned Parquet ignore
    prepare   one small file, the batch's manifest, names all files and their targets; it is created as a whole
    publish   each file is renamed into its directory, under a name that contains writer and batch

If a run dies before the manifest, no reader sees its stage; the next run writes the batch again and deletes that stage.
If a run dies after the manifest, the batch is decided: the next run renames the files that are still on the stage and
does not write the batch again, whatever Spark asks. So no row is ever in two files, no file that a reader has seen is
removed, and all files of a batch are in place once Spark's checkpoint has it as finished. While a batch is being
published, a reader sees a part of it. A manifest is kept until the next batch has started, when Spark's commit log has
the batch (MicroBatchExecution: offsets, then the batch, then the commit log).

The writer is the query, by the id in its checkpoint: ingests with different checkpoints may share a lake, two runs with
the same checkpoint may not. On a local file system the second run is refused. Elsewhere the newer run becomes the owner
(`locks`), and the older one finds that out before it decides its next batch; if both are past that point, only one of
them can create the manifest. No stage is deleted before its batch is decided.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from kohort.spark.files.directory import FileSystemError
from kohort.spark.files.hadoop import HadoopDirectory
from kohort.spark.lake.locks import Ownership, Taken

HIDDEN = "_kohort"
"""The directory of stages and manifests, in a lake and in a table of dead letters."""
DEAD_LETTERS = "_dead_letters"
SPARK_METADATA = "_spark_metadata"
ATTEMPTS = 3
"""How often a batch is staged again if it has other dead letters than were counted with its rows."""
MOVES_AT_ONCE = 8


class LakeError(RuntimeError):
    """The lake cannot be written, or differs from what this writer left."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a batch: rows, dead letters, and the files of both with their bytes. None: not counted."""

    batch: int
    rows: int | None
    dead_letters: int
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file and its target, relative to the directory of the rows or, if `dead`, of the dead letters."""

    dead: bool
    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class Manifest:
    written: Written
    stage: str
    moves: tuple[Move, ...]

    def to_json(self) -> str:
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        value = json.loads(text)
        return cls(Written(**value["written"]), value["stage"], tuple(Move(**move) for move in value["moves"]))


Write = Callable[[str], tuple[int, int]]
"""Writes a batch's rows as Parquet to an address. Returns the numbers of rows and of skipped dead letters."""
WriteDead = Callable[[str], int]


class Lake:
    """A lake as one writer uses it, in one thread. Must be closed."""

    def __init__(self, output: HadoopDirectory, dead_letters: HadoopDirectory, writer: str) -> None:
        self._tables = {False: output, True: dead_letters}
        self._writer = writer
        self._manifests = output / HIDDEN / writer / "batches"
        self._owner = Ownership(output / HIDDEN / writer)
        self._swept = False

    def recover(self) -> list[Written]:
        """Become the owner, and publish the batches that are decided. `write` calls this if the application has not.

        Raises LakeError, FileSystemError.
        """
        try:
            self._owner.take()
        except Taken as other:
            raise LakeError(
                f"another run over this checkpoint is writing to {self._tables[False]} ({other}); one at a time"
            ) from None
        return [self._publish(self._manifest(batch)) for batch in self._batches()]

    def close(self) -> None:
        """Let another run of the same query write."""
        self._owner.release()

    def write(self, batch: int, rows: Write, dead: WriteDead) -> Written:
        """Write a batch to the lake, or publish the rest of it. Raises LakeError, FileSystemError."""
        if not self._owner.taken:
            self.recover()
        known = self._batches()
        if known and known[-1] > batch:
            raise LakeError(
                f"the lake {self._tables[False]} has batch {known[-1]} of this query and its checkpoint goes back to "
                f"{batch}: an older copy of the checkpoint would write rows twice"
            )
        manifest = self._manifest(batch) if batch in known else self._prepare(batch, rows, dead)
        written = self._publish(manifest)
        if not self._swept:
            self._sweep(batch)
        for older in known:
            if older < batch:
                self._file(older).remove()
        return written

    def _sweep(self, batch: int) -> None:
        """Delete the stages of earlier runs whose batches are decided and published."""
        for table in self._tables.values():
            stages = table / HIDDEN / self._writer
            for name in stages.names():
                number = name.removeprefix("stage-").partition("-")[0]
                if name.startswith("stage-") and number.isdigit() and int(number) <= batch:
                    (stages / name).remove()
        self._swept = True

    # -- stage and prepare

    def _prepare(self, batch: int, rows: Write, dead: WriteDead) -> Manifest:
        for _ in range(ATTEMPTS):
            stage = f"{HIDDEN}/{self._writer}/stage-{batch}-{uuid.uuid4().hex}"  # for this attempt alone
            wrote, skipped = rows(str(self._tables[False] / stage))
            caught = dead(str(self._tables[True] / stage)) if skipped else 0
            if caught == skipped:
                return self._decide(batch, stage, wrote, caught)
            self._discard(stage)
        raise LakeError(
            f"batch {batch}: {skipped} records did not parse, but {caught} when they were read again: the log "
            "changes while it is read"
        )

    def _decide(self, batch: int, stage: str, rows: int, dead_letters: int) -> Manifest:
        moves: list[Move] = []
        size = 0
        files = {False: 0, True: 0}
        for is_dead, table in self._tables.items():
            staged = sorted((table / stage).files(), key=lambda found: found.path)
            for found in staged:
                directory, _, name = found.path.rpartition("/")
                if name.startswith(("_", ".")):
                    continue
                # As Spark's `part-00000-….c000.snappy.parquet` ends.
                suffix = "." + ".".join(name.split(".")[-2:]) if name.count(".") > 2 else ".parquet"
                final = f"{self._writer[:8]}-{batch:09d}-{len(moves):05d}{suffix}"
                moves.append(Move(is_dead, f"{stage}/{found.path}", f"{directory}/{final}".lstrip("/")))
                size += found.size
                files[is_dead] += 1
        for is_dead, count in ((False, rows), (True, dead_letters)):
            if count and not files[is_dead]:
                raise LakeError(
                    f"batch {batch}: Spark wrote {count} rows to {self._tables[is_dead] / stage}, and there is no file"
                    ": another program removes them"
                )
        manifest = Manifest(Written(batch, rows, dead_letters, len(moves), size), stage, tuple(moves))
        self._create(manifest)
        return manifest

    def _create(self, manifest: Manifest) -> None:
        """Decide a batch, unless another run has decided it."""
        batch = manifest.written.batch
        try:
            self._owner.check()
            if self._file(batch).write_new(manifest.to_json()):
                return
            other = "it has decided the batch"
        except Taken as owner:
            other = str(owner)
        self._discard(manifest.stage)
        raise LakeError(
            f"batch {batch}: another run over this checkpoint writes to {self._tables[False]} ({other}); this one "
            "ends, and nothing was written twice"
        )

    def _discard(self, stage: str) -> None:
        for table in self._tables.values():
            (table / stage).remove()

    # -- publish

    def _publish(self, manifest: Manifest) -> Written:
        """Rename the files that are still on the stage. The others are in place already, or were compacted since."""
        staged = {
            f"{manifest.stage}/{found.path}"
            for table in self._tables.values()
            for found in (table / manifest.stage).files()
        }
        moves = [move for move in manifest.moves if move.staged in staged]
        if len(moves) > MOVES_AT_ONCE:  # if renames are copies, they take long
            with ThreadPoolExecutor(MOVES_AT_ONCE) as pool:
                list(pool.map(self._put, moves))
        else:
            for move in moves:
                self._put(move)
        self._discard(manifest.stage)
        return manifest.written

    def _put(self, move: Move) -> None:
        table = self._tables[move.dead]
        staged, final = table / move.staged, table / move.final
        if final.exists():
            staged.remove()  # an interrupted rename of an object store had copied it
            return
        try:
            _move(staged, final)
        except FileSystemError:
            if staged.exists():
                raise
            # Another run that publishes the same batch was faster.

    # -- manifests

    def _file(self, batch: int) -> HadoopDirectory:
        return self._manifests / f"{batch}.json"

    def _manifest(self, batch: int) -> Manifest:
        return Manifest.from_json(self._file(batch).read_text())

    def _batches(self) -> list[int]:
        """The batches that are decided and may be unfinished in the checkpoint, oldest first."""
        stems = [name.removesuffix(".json") for name in self._manifests.names()]
        return sorted(int(stem) for stem in stems if stem.isdigit())


def refuse_file_sink(output: HadoopDirectory) -> None:
    """Raises LakeError if Spark's file sink has written here: its readers would not see our files."""
    if (output / SPARK_METADATA).exists():
        raise LakeError(
            f"{output} was written by Spark's file sink: its log {SPARK_METADATA} hides all other files from Spark's "
            "readers. Take another directory, or remove that log if every file there counts"
        )


def _move(staged: HadoopDirectory, final: HadoopDirectory, attempts: int = 3) -> None:
    """Rename. Repeats it, since a compaction may exchange the directory between its creation and the rename."""
    for attempt in range(attempts):
        try:
            staged.move(final)
            break
        except FileSystemError:
            if attempt == attempts - 1:
                raise


def data_files(names: Sequence[str]) -> list[str]:
    """The paths below a lake that hold rows: not hidden, and not in a hidden directory."""
    return [
        name
        for name in names
        if name.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in name.split("/"))
    ]
