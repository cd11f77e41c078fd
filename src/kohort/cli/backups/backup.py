"""`kohort backup`: a copy of a data directory's database, also while a server uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.backups.wording import EXIT_CODES, contents_text, size_text
from kohort.cli.connect import complain, fail
from kohort.cli.groups.wording import duration
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App, byte_count
from kohort.cli.output import Format, Output, print_document

app = App(epilog=EXIT_CODES)

DEFAULT_MAX_WAL = "1g"
MOST_WAL_BYTES = 3 * 1024**3
"""The server stops when its write-ahead log has 4 GiB."""


@app.command()
def backup(
    target: Annotated[Path, typer.Option("--to", metavar="FILE", help="The backup, which only its owner may read.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="The data directory [default: that of kohort serve]."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE, once the new backup is whole.")] = False,
    max_wal: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Give up when the server's write-ahead log has this size: it grows while the backup reads. "
            "As 500m or 1g, at most 3g.",
        ),
    ] = DEFAULT_MAX_WAL,
    output: Output = Format.TABLE,
) -> None:
    """Back up a data directory to one file, while its server runs or not.

    The file holds everything: records, groups, offsets, ACLs, and the users' password hashes.
    """
    limit = byte_count("--max-wal", max_wal)
    if limit > MOST_WAL_BYTES:
        raise typer.BadParameter(f"{max_wal} is more than 3g; the server stops at 4g", param_hint=["--max-wal"])
    import msgspec

    from kohort.cli.start import default_data_dir
    from kohort.server.backups.backup import Stopped, StorageError, back_up  # the server side is loaded when needed

    source = default_data_dir() if data_dir is None else data_dir
    with interrupts.careful():
        try:
            made = back_up(source, target, force=force, max_wal_bytes=limit, stopped=interrupts.asked, told=complain)
        except Stopped:
            complain("interrupted; no backup was written")
            interrupts.check()
            raise typer.Exit(1) from None
        except StorageError as error:
            fail(str(error))
    if output != Format.TABLE:
        document = {"data_dir": str(source), "file": str(target), "bytes": made.size, "took_ms": made.took_ms}
        print_document(document | msgspec.structs.asdict(made.contents), output)
        return
    typer.echo(f"backed up {source} to {target}: {size_text(made.size)} in {duration(made.took_ms)}")
    typer.echo(contents_text(made.contents))
