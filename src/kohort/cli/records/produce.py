"""`kohort produce`: lines of a file or of standard input become records.

The command sends the lines of one read before the next read: `tail -f log | kohort produce` delivers at once, and a
large file travels in large batches. Keyed records go to the same partition as with Kafka's Java producer (murmur2),
others to the partitions in turn. Batches in flight go to different partitions, so a partition has the lines in order.
After a lost answer it sends the batch again: unless acks is 0, a failing network duplicates lines at worst.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    EXIT_CODES,
    ClusterOptions,
    complete_topics,
    connected,
    fail,
    partitions_of,
)
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.cli.output import plural
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records.partitioner import partition_for_key
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.compression import NAMES
from kohort.wire.errors import ErrorCode

app = App()

READ_BYTES = 1_048_576
BATCH_BYTES = 524_288
"""A partition's batch is sent when its records reach this size; brokers accept 1 MiB by default."""

LONGEST_LINE = 16 * 1_048_576
LOOK_EVERY_S = 0.1


Acks = Literal["all", "-1", "1", "0"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(slots=True)
class Sending:
    """Records to be sent to one topic, each to one of `partitions`."""

    cluster: Cluster
    topic: str
    partitions: list[int]
    acks: int
    codec: int
    sent: int = 0
    sent_bytes: int = 0
    _turn: int = 0
    waiting: dict[int, list[NewRecord]] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        partition = self._choose(key)
        size = len(key or b"") + len(value or b"")
        self.waiting.setdefault(partition, []).append(NewRecord(key, value, time.time_ns() // 1_000_000))
        self._sizes[partition] = self._sizes.get(partition, 0) + size
        if self._sizes[partition] >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the waiting records, and wait for the acknowledgement."""
        if not self.waiting:
            return
        batches = {
            (self.topic, partition): encode_batch(records, compression=self.codec)
            for partition, records in self.waiting.items()
        }
        self.cluster.produce_batches(batches, acks=self.acks)
        self.sent += sum(len(records) for records in self.waiting.values())
        self.sent_bytes += sum(self._sizes.values())
        self.waiting.clear()
        self._sizes.clear()

    def _choose(self, key: bytes | None) -> int:
        if key is not None:
            return self.partitions[partition_for_key(key, len(self.partitions))]
        self._turn += 1
        return self.partitions[self._turn % len(self.partitions)]


@app.command("produce", epilog=EXIT_CODES)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics)],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read this file instead of standard input.", metavar="FILE")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Lines are KEY, this text, VALUE.", metavar="TEXT")
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option(help="A key or value that equals this text is null.", metavar="TEXT")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send everything to this partition.")
    ] = None,
    acks: Annotated[Acks, typer.Option(help="Replicas that must have stored a record.")] = "all",
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="Compression of batches.")] = "none",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary on stderr.")] = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Produce one record a line."""
    if key_separator == "":
        raise typer.BadParameter("--key-separator is empty")
    started = time.monotonic()
    lines = _lines_of(file)
    separator = None if key_separator is None else _unescaped(key_separator)
    null = None if null_marker is None else null_marker.encode()
    with connected(where) as cluster:
        described = cluster.topics([topic], create=True)[topic]  # if the broker is set up to create topics
        chosen = [] if partition is None else [partition]
        known = partitions_of(described, chosen, f"create it with: kohort topics create {topic}")
        number = -1 if acks == "all" else int(acks)
        sending = Sending(cluster, topic, chosen or known, number, NAMES.index(compression))
        try:
            with interrupts.careful():
                _send_lines(sending, lines, separator, null)
        except KafkaError as error:
            if error.code == ErrorCode.MESSAGE_TOO_LARGE:
                error = error.because("the topic's setting max.message.bytes bounds a batch")
            raise error.because(f"{plural(sending.sent, 'record')} were sent before") from None
    if not quiet:
        seconds = time.monotonic() - started
        what = f"{plural(sending.sent, 'record')} ({sending.sent_bytes} bytes)"
        typer.echo(f"produced {what} to {topic} in {seconds:.2f} s", err=True)


def _send_lines(sending: Sending, lines: Iterator[list[bytes]], separator: bytes | None, null: bytes | None) -> None:
    number = 0
    for chunk in lines:
        for line in chunk:
            number += 1
            key: bytes | None = None
            value: bytes | None = line
            if separator is not None:
                key, found, value = line.partition(separator)
                if not found:
                    sending.flush()
                    fail(f"line {number} has no key separator; {plural(sending.sent, 'record')} before it were sent")
            if null is not None:
                key, value = (None if key == null else key), (None if value == null else value)
            sending.add(key, value)
        sending.flush()
        if interrupts.asked():
            return


def _lines_of(file: Path | None) -> Iterator[list[bytes]]:
    if file is None:
        return _chunks(sys.stdin.buffer)
    try:
        source = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint=["--file"]) from None
    return _chunks(source)


def _chunks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends, as many as each read returned. A last line without an end counts."""
    rest = b""
    read = getattr(source, "read1", source.read)
    while not _interrupted_before_input(source) and (data := read(READ_BYTES)):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            fail(f"a line is longer than {LONGEST_LINE} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest]


def _interrupted_before_input(source: BinaryIO) -> bool:
    """Wait for input; True when a signal asks for the end first. Files always have some."""
    try:
        while not select.select([source], [], [], LOOK_EVERY_S)[0]:
            if interrupts.asked():
                return True
    except (OSError, ValueError):  # not a file of the operating system
        pass
    return interrupts.asked()


def _unescaped(text: str) -> bytes:
    """`\\t` and `\\n` as people type them in a shell."""
    return text.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0").encode()
