"""Options and formats that the commands about a lake share: the table's format, the session's jars, sizes, times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from kohort.cli.option_objects import pairs
from kohort.cli.output import plural
from kohort.cli.pipelines.ingest_progress import amount
from kohort.spark.lake.compaction import Compacted
from kohort.spark.lake.tables import SETTINGS, TableFormat

DEFAULT_TARGET = "128MB"
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}

CompactTo = Annotated[
    str, typer.Option("--compact-to", metavar="SIZE", help="Approximate size of a file after a compaction.")
]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The lake's format, and the Spark session that it needs."""

    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Place of values that do not parse [default: LAKE/_dead_letters]."),
    ] = None
    table_format: Annotated[
        TableFormat, typer.Option("--format", help="Parquet files, or a table whose jars the session has.")
    ] = "parquet"
    packages: Annotated[
        str | None,
        typer.Option(metavar="GROUP:NAME:VERSION,...", help="Maven packages for the local session, such as Delta's."),
    ] = None
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of the local Spark session.")
    ] = None

    def session_settings(self) -> dict[str, str]:
        """Settings of a new local session."""
        jars = {"spark.jars.packages": self.packages} if self.packages else {}
        return SETTINGS.get(self.table_format, {}) | jars | pairs("--conf", self.conf)


def parse_size(flag: str, text: str) -> int:
    """Bytes of `128MB`, `64MiB` or a plain number."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in UNITS or float(match[1]) * UNITS[match[2]] < 1:
        raise typer.BadParameter(f"{text!r}: {flag} takes a size like 128MB or 1GiB")
    return int(float(match[1]) * UNITS[match[2]])


def parse_seconds(flag: str, text: str) -> float:
    """Seconds of `90s`, `15m`, `2h`, `1d` or a plain number."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text.lower())
    if match is None:
        raise typer.BadParameter(f"{text!r}: {flag} takes a time like 90s, 15m, 2h or 1d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def parse_time(flag: str, text: str) -> int:
    """Milliseconds since 1970 of an instant in ISO 8601 (UTC where it names no zone), or of that number itself."""
    if text.isdigit():
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        wanted = "a time like 2024-05-01T12:00Z, or milliseconds since 1970"
        raise typer.BadParameter(f"{text!r}: {flag} takes {wanted}") from None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)


def compacted_line(done: Compacted) -> str:
    if not done.directories:
        return "nothing to compact"
    where = "1 directory" if done.directories == 1 else f"{done.directories} directories"
    before = f"{plural(done.files_before, 'file')} of {amount(done.bytes_before)}"
    return f"compacted {where}: {before} became {plural(done.files_after, 'file')} of {amount(done.bytes_after)}"
