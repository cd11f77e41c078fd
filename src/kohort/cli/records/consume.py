"""`kohort consume`: print the records of a topic.

It reads partitions by position and joins no group. With `--group` it starts at the group's committed offsets and
commits what it has printed and flushed, as a simple consumer, so only while the group has no members. The loop ends at
Ctrl-C, after `--max-messages`, after `--timeout-ms` without a record, or, with `--exit-at-end`, at the end that each
partition had when the command started. Each of these is success.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    EXIT_CODES,
    ClusterOptions,
    complain,
    complete_groups,
    complete_topics,
    connected,
    fail,
    partitions_of,
)
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.cli.output import plural
from kohort.cli.places import near_topic
from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.client.records import FetchedRecord, next_position, records
from kohort.client.records.partition_leaders import FetchedPartition, Isolation
from kohort.wire.errors import ErrorCode

app = App()

POLL_MS = 500
COMMIT_INTERVAL_S = 1.0
DEFAULT_FORMAT = "%v\\n"
IDLE_STATES = ("Empty", "Dead")

FORMAT_HELP = (
    "The text of a record: %k key, %v or %s value, %o offset, %p partition, %t topic, %T timestamp (ms), "
    "%h headers, %% a percent sign, \\n and \\t. It adds nothing else, not even a line end."
)

Render = Callable[[FetchedRecord], bytes]


@dataclass(slots=True)
class Reading:
    """State of one run. `ends` are the offsets at which partitions end, empty for never."""

    cluster: Cluster
    positions: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    render: Render
    isolation: Isolation
    group: str | None
    max_messages: int | None
    printed: int = 0
    _uncommitted: dict[TopicPartition, int] = field(default_factory=dict)
    _committed_at: float = field(default_factory=time.monotonic)

    def run(self, timeout_ms: int | None) -> None:
        """Print until there is a reason to end. `timeout_ms` is the longest time without a record."""
        last_record = time.monotonic()
        while not self._done():
            wait_ms = POLL_MS
            if timeout_ms is not None:
                left_ms = timeout_ms - int((time.monotonic() - last_record) * 1000)
                if left_ms <= 0:
                    return
                wait_ms = min(POLL_MS, left_ms)
            before = self.printed
            fetched = self.cluster.fetch(self.positions, max_wait_ms=wait_ms, isolation=self.isolation)
            for part in fetched:
                self._take(part)
            if interrupts.asked():
                return
            if self.printed > before:
                last_record = time.monotonic()
            self.commit(after_s=COMMIT_INTERVAL_S)

    def commit(self, *, after_s: float = 0) -> None:
        """Commit the positions of printed records, unless the last commit is younger than `after_s`."""
        if self.group is None or not self._uncommitted or time.monotonic() - self._committed_at < after_s:
            return
        self.cluster.commit(self.group, self._uncommitted)
        self._uncommitted = {}
        self._committed_at = time.monotonic()

    def _done(self) -> bool:
        for partition, end in list(self.ends.items()):
            if self.positions.get(partition, end) >= end:
                self.positions.pop(partition, None)
        return not self.positions or self._enough()

    def _enough(self, more: int = 0) -> bool:
        return self.max_messages is not None and self.printed + more >= self.max_messages

    def _take(self, fetched: FetchedPartition) -> None:
        partition = (fetched.topic, fetched.partition)
        if fetched.error:
            self._recover(partition, fetched.error)
            return
        if not fetched.records or self._enough():
            return
        end = self.ends.get(partition)
        lines: list[bytes] = []
        position = self.positions[partition]
        for record in records(fetched, position):
            if (end is not None and record.offset >= end) or self._enough(len(lines)):
                break
            lines.append(self.render(record))
            position = record.offset + 1
        else:
            position = next_position(fetched, position)
        _write(b"".join(lines))
        self.printed += len(lines)
        position = position if end is None else min(position, end)
        if position > self.positions[partition]:
            self.positions[partition] = self._uncommitted[partition] = position

    def _recover(self, partition: TopicPartition, error: ErrorCode) -> None:
        """The log does not have this position: continue at the nearer end of the log."""
        where = f"{partition[0]}-{partition[1]}"
        if error != ErrorCode.OFFSET_OUT_OF_RANGE:
            fail(f"cannot read {where}: {error.name}: {error.message}")
        position = self.positions[partition]
        earliest = self.cluster.offsets([partition], "earliest")[partition]
        latest = self.cluster.offsets([partition], "latest")[partition]
        self.positions[partition] = min(max(position, earliest), latest)
        complain(f"{where} has no offset {position}; continuing at {self.positions[partition]}")


def _start(value: str | None) -> str | None:
    if value is None or value in ("earliest", "latest") or re.fullmatch(r"-?\d+", value):
        return value
    raise typer.BadParameter(f"{value!r} is not earliest, latest or a number")


@app.command("consume", epilog=EXIT_CODES)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics)],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --offset earliest.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="earliest|latest|N|-N",
            help="Where to start: an end, an offset, or N records before the end of each partition. Default: latest.",
            callback=_start,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="P", min=0, help="Read only this partition; repeatable."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after N records.")
    ] = None,
    timeout_ms: Annotated[int | None, typer.Option(min=0, help="Stop after this long without a record.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop at the log ends of the start.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Start at this group's committed offsets, else as --offset says, and commit printed records. "
            "Does not join the group; refused while the group has members.",
            autocompletion=complete_groups,
        ),
    ] = None,
    format: Annotated[str | None, typer.Option("--format", "-F", help=FORMAT_HELP)] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="json", help="One JSON object a line.")
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option(help="Whether to omit records of open and aborted transactions.")
    ] = "read_uncommitted",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary on stderr.")] = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Print the records of a topic."""
    if from_beginning and offset not in (None, "earliest"):
        raise typer.BadParameter("--from-beginning and --offset contradict each other")
    if output not in (None, "json"):
        raise typer.BadParameter(f"--output {output!r}; it takes json, or --format describes the text")
    if output and format:
        raise typer.BadParameter("choose one of --output and --format")
    render = json_line if output else text_of(DEFAULT_FORMAT if format is None else format)
    with connected(where) as cluster, interrupts.careful():
        found = cluster.topics([topic])[topic]
        near = near_topic(cluster, topic) if found.error else ""
        known = partitions_of(found, partition or (), near or "kohort topics list shows those that do")
        partitions = [(topic, index) for index in (sorted(set(partition)) if partition else known)]
        positions = _positions(cluster, partitions, "earliest" if from_beginning else offset or "latest", group)
        ends = cluster.offsets(partitions, "latest", isolation=isolation) if exit_at_end else {}
        reading = Reading(cluster, positions, ends, render, isolation, group, max_messages)
        reading.run(timeout_ms)
        reading.commit()
    if not quiet:
        typer.echo(f"consumed {plural(reading.printed, 'record')} from {topic}", err=True)


def _write(data: bytes) -> None:
    """Write and flush all of it: records that count as printed must have left. Unbuffered outputs may take parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _positions(
    cluster: Cluster, partitions: list[TopicPartition], start: str, group: str | None
) -> dict[TopicPartition, int]:
    positions: dict[TopicPartition, int] = {}
    if group is not None:
        state = cluster.describe_groups([group])[group].state
        if state not in IDLE_STATES:
            fail(f"group {group} is {state}: only its members may commit; leave out --group")
        positions = {partition: found.offset for partition, found in cluster.committed(group, partitions).items()}
    rest = [partition for partition in partitions if partition not in positions]
    if start == "earliest":
        return positions | cluster.offsets(rest, "earliest")
    if start == "latest":
        return positions | cluster.offsets(rest, "latest")
    if not start.startswith("-"):
        return positions | dict.fromkeys(rest, int(start))
    earliest, latest = cluster.offsets(rest, "earliest"), cluster.offsets(rest, "latest")
    return positions | {partition: max(earliest[partition], latest[partition] + int(start)) for partition in rest}


def text_of(template: str) -> Render:
    """A function that renders records by a template of `%` marks and backslash escapes."""
    escapes = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}
    parts: list[Render] = []
    for part in re.split(r"(%.|\\.)", template, flags=re.DOTALL):
        if part in _MARKS:
            parts.append(_MARKS[part])
        elif part.startswith("%"):
            raise typer.BadParameter(f"--format has the unknown mark {part}; %% prints a percent sign")
        elif part:
            parts.append(_constant(escapes.get(part, part).encode()))
    return lambda record: b"".join(render(record) for render in parts)


def _constant(text: bytes) -> Render:
    return lambda record: text


_MARKS: dict[str, Render] = {
    "%k": lambda record: record.key or b"",
    "%v": lambda record: record.value or b"",
    "%s": lambda record: record.value or b"",
    "%o": lambda record: b"%d" % record.offset,
    "%p": lambda record: b"%d" % record.partition,
    "%t": lambda record: record.topic.encode(),
    "%T": lambda record: b"%d" % record.timestamp,
    "%h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "%%": lambda record: b"%",
}


def json_line(record: FetchedRecord) -> bytes:
    """A record as one line of JSON. Bytes are text where they are UTF-8, else {"base64": "..."}."""
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
        "headers": [{"key": name, "value": _json_bytes(value)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _json_bytes(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
