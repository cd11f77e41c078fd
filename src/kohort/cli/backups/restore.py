"""`kohort restore`: a data directory from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.backups.wording import EXIT_CODES, contents_text
from kohort.cli.connect import complain, fail
from kohort.cli.groups.wording import duration
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table

app = App(epilog=EXIT_CODES)


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(metavar="FILE", help="A backup that kohort backup has made.")],
    data_dir: Annotated[
        Path, typer.Option("--to", metavar="DIR", file_okay=False, help="The new data directory; missing or empty.")
    ],
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not check the backup for damage first (kohort verify).")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Make a data directory of a backup, for a server to start on.

    Groups have no members, and all generations, epochs and producer ids are raised above those that were used after the
    backup. The server that was backed up must never run again beside the restored one.
    """
    import msgspec

    from kohort.server.backups.restore import Stopped, StorageError, restore
    from kohort.server.backups.verify import verify

    with interrupts.careful():
        try:
            faults = () if no_verify else verify(backup).faults
            interrupts.check()
            if not faults:
                done = restore(backup, data_dir, interrupts.asked)
        except Stopped:
            complain("interrupted; nothing was restored")
            interrupts.check()
            raise typer.Exit(1) from None
        except StorageError as error:
            fail(str(error))
    if faults:
        for fault in faults:
            typer.echo(f"{fault.where}: {fault.what}")
        count = plural(len(faults), "fault")
        fail(f"{backup} is damaged: {count}; nothing was restored (--no-verify tries it all the same)")
    if output != Format.TABLE:
        document = {"file": str(backup), "data_dir": str(data_dir), "took_ms": done.took_ms}
        document |= msgspec.structs.asdict(done.contents)
        document["raised"] = msgspec.structs.asdict(done.raised)
        document["beyond_ends"] = [msgspec.structs.asdict(each) for each in done.beyond_ends]
        print_document(document, output)
        return
    raised = done.raised
    typer.echo(f"restored {backup} to {data_dir} in {duration(done.took_ms)}")
    typer.echo(contents_text(done.contents))
    typer.echo(f"raised: generations and epochs to {raised.epochs:,} at least, producer ids to {raised.producer_ids:,}")
    if raised.aborted_transactions:
        typer.echo(f"aborted: {plural(raised.aborted_transactions, 'open transaction')}")
    if done.beyond_ends:
        typer.echo("committed offsets beyond the end of their log, which consumers will reset:")
        columns = [name("GROUP"), name("TOPIC"), number("PARTITION"), number("OFFSET"), number("END")]
        rows = [(each.group, each.topic, each.partition, each.offset, each.end_offset) for each in done.beyond_ends]
        print_table(columns, rows)
