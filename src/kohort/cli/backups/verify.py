"""`kohort verify`: whether a backup or a stopped data directory is what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.backups.wording import EXIT_CODES, contents_text, size_text
from kohort.cli.connect import FAILED, complain, fail
from kohort.cli.groups.wording import duration
from kohort.cli.option_objects import App
from kohort.cli.output import Format, Output, plural, print_document

app = App(epilog=EXIT_CODES.replace("1 failed", "1 damaged, or failed"))


@app.command()
def verify(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A backup, or the data directory of a server that is stopped.")
    ],
    output: Output = Format.TABLE,
) -> None:
    """Check a backup or a stopped data directory for damage; change nothing.

    Reads every record, compares all checksums, and replays the logs as a start does. Prints a line for each fault.
    """
    import msgspec

    from kohort.server.backups.verify import StorageError, verify

    try:
        found = verify(path)
    except StorageError as error:
        fail(str(error))
    if output != Format.TABLE:
        contents = {} if found.contents is None else msgspec.structs.asdict(found.contents)
        faults = [msgspec.structs.asdict(fault) for fault in found.faults]
        document = {"path": str(path), "sound": not faults, "faults": faults, "bytes": found.size}
        print_document(document | {"took_ms": found.took_ms} | contents, output)
    else:
        for fault in found.faults:
            typer.echo(f"{fault.where}: {fault.what}")
        if found.contents is not None:
            typer.echo(f"{path} is sound: {size_text(found.size)}, read in {duration(found.took_ms)}")
            typer.echo(contents_text(found.contents))
    if found.faults:
        complain(f"{path} is damaged: {plural(len(found.faults), 'fault')}")
        raise typer.Exit(FAILED)
