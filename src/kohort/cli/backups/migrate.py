"""`kohort migrate`: all data from a data directory to PostgreSQL, or back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli.backups.wording import contents_text, size_text
from kohort.cli.connect import UNREACHABLE, complain, fail
from kohort.cli.groups.wording import duration
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import FAILED, App, choice
from kohort.cli.output import Format, Output, plural, print_document

if TYPE_CHECKING:
    from kohort.server.migration.migrate import Counted, Log, Migrated, Progress

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 cannot reach the database."
PLACE = "DIR|postgresql://..."

app = App(epilog=EXIT_CODES)


def _checked_place(place: str) -> str:
    if not place.strip():
        raise typer.BadParameter("name a data directory, or postgresql://USER@HOST/DATABASE")
    if "://" in place and not place.startswith(("postgresql://", "postgres://")):
        raise typer.BadParameter("a database is written as postgresql://USER@HOST/DATABASE")
    return place


@app.command()
def migrate(
    from_: Annotated[
        str, typer.Option("--from", metavar=PLACE, help="The data; no server uses it.", callback=_checked_place)
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar=PLACE,
            help="Where it goes: a missing or empty directory, or a database without data of kohort.",
            callback=_checked_place,
        ),
    ],
    serving: Annotated[
        str,
        typer.Option(
            "--serving",
            metavar="one|all",
            help="Of a new database: the cluster.serving of its nodes, which it keeps.",
            **choice(["one", "all"]),
        ),
    ] = "one",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be copied; change nothing.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Migrate all data from a data directory to PostgreSQL, or back (experimental).

    Stop the server first. Records, groups, offsets, generations, transactions, users and ACLs go on as after a restart.
    Every partition of the copy is compared with the source. No server starts on the source afterwards.
    """
    serves_all = serving == "all"
    if serves_all and "://" not in to:
        raise typer.BadParameter("all is for databases: one server serves a directory", param_hint=["--serving"])
    from kohort.server.migration import migrate as work

    try:
        if dry_run:
            _tell_counted(work.count(from_, to, serves_all=serves_all), output)
            return
        with _Line() as line, interrupts.careful():
            done = work.migrate(from_, to, interrupts.asked, line.show, serves_all=serves_all)
    except work.Stopped:
        complain("interrupted; nothing was migrated: no server starts on the target, and the source is as it was")
        interrupts.check()
        raise typer.Exit(FAILED) from None
    except work.StorageError as error:
        fail(str(error), UNREACHABLE if isinstance(error, work.Unavailable) else FAILED)
    _tell_migrated(done, output)


class _Line:
    """A line of progress on stderr, if that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status: Any = self._console.status("reading the source") if self._console.is_terminal else None

    def __enter__(self) -> _Line:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, progress: Progress) -> None:
        if self._status is not None:
            share = progress.done / progress.size if progress.size else 1.0
            done = f"{size_text(progress.done)} of {size_text(progress.size)}"
            self._status.update(f"{progress.doing}  {share:4.0%}  {done}")


def _tell_counted(counted: Counted, output: Format) -> None:
    if output != Format.TABLE:
        print_document(_document(counted), output)
        return
    _tell_what(f"would migrate {counted.source} to {counted.target}", counted)


def _tell_what(what: str, counted: Counted) -> None:
    typer.echo(f"{what}: {plural(counted.logs, 'log')}, {size_text(counted.size)}")
    typer.echo(contents_text(counted.contents))
    details = counted.details
    others = [
        plural(details.acls, "ACL"),
        plural(details.quotas, "quota"),
        f"{plural(details.share_partitions, 'share-partition')} with a state",
        plural(details.open_transactions, "open transaction"),
    ]
    present = [text for text in others if not text.startswith("0 ")]
    if present:
        typer.echo(", ".join(present))
    for note in counted.notes:
        typer.echo(f"note: {note}")


def _document(counted: Counted) -> dict[str, Any]:
    import msgspec

    return {
        "source": counted.source,
        "target": counted.target,
        "logs": counted.logs,
        "bytes": counted.size,
        **msgspec.structs.asdict(counted.contents),
        **msgspec.structs.asdict(counted.details),
        "notes": list(counted.notes),
    }


def _tell_migrated(done: Migrated, output: Format) -> None:
    counted = done.counted
    if output != Format.TABLE:
        document = {**_document(counted), "took_ms": done.took_ms, "partitions": list(map(_row, done.logs))}
        print_document(document, output)
        return
    _tell_what(f"migrated {counted.source} to {counted.target} in {duration(done.took_ms)}", counted)
    typer.echo(f"compared: all logs are equal. No server starts on {counted.source} any more")


def _row(log: Log) -> dict[str, Any]:
    return {
        "topic": log.topic,
        "partition": log.partition,
        "start_offset": log.sum.start_offset,
        "end_offset": log.sum.end_offset,
        "batches": log.sum.batches,
        "records": log.sum.records,
        "bytes": log.sum.size,
        "crc32c": f"{log.sum.checksum:08x}",
    }
