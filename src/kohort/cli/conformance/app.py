"""`kohort conformance`: the behaviour of a broker, asked on raw sockets and compared with Apache Kafka's.

It uses the wire and the client library alone, so it says the same about every broker that speaks Kafka's protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort import __version__
from kohort.cli.connect import DEFAULT_CLUSTER, FAILED, UNREACHABLE, ClusterOptions, fail, fail_because
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.cli.output import Format, Output, plural, print_document
from kohort.client.errors import KafkaError
from kohort.client.security.security import Security
from kohort.conformance import report, rows, table
from kohort.conformance.play.broker import Ended, NotServed
from kohort.conformance.play.requests import Refused
from kohort.conformance.run import DIFFERENT, KEPT, PARALLEL, Kit, Play
from kohort.conformance.target import Gone, Target

NOTHING_SHOWN = 4

app = App(
    epilog="Exit codes: 0 every row that was shown is kept, 1 a row is different, 2 wrong usage, "
    "3 cannot reach the cluster, or the broker goes during the run, 4 no row could be shown, 130 interrupted.",
)


def _known(file: Path | None) -> set[str]:
    if file is None:
        return set()
    try:
        return table.different_rows(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        why = error.strerror or str(error)
    except ValueError as error:
        why = str(error)
    raise typer.BadParameter(f"cannot read {file}: {why}", param_hint=["--known"])


def _chosen(text: str) -> Callable[[str], bool]:
    try:
        return rows.chosen(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=["--rows"]) from None


@app.command()
def conformance(
    of_rows: Annotated[
        str,
        typer.Option("--rows", metavar="J,S,TX9,…", help="Letters or numbers of rows (docs/conformance.md); all else."),
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="End within five minutes: leave out what takes more than a minute.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every row, not only those that are different.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", dir_okay=False, help="Write a page of HTML, too.")
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="A table of an earlier run (-o json): rows that were different in it are no failure.",
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=1, max=64, help="How many scenarios are played at a time; fewer on a slow machine.")
    ] = PARALLEL,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Ask a broker what Kafka's clients rely on, and compare its answers with those of Apache Kafka 4.3.

    It creates topics, groups and transactional ids whose names begin with kohort-conformance-, and removes topics and
    groups at the end, also after Ctrl-C. Run it on a cluster for tests: it starts and stops hundreds of members.
    """
    wanted, expected = _chosen(of_rows), _known(known)
    security = Security.of(where.security_properties())
    try:
        with interrupts.careful():
            document = _asked(where.bootstrap_server, security, wanted, quick, parallel)
    except Gone as error:
        fail(f"the broker does not answer any more: {error}", UNREACHABLE)
    except Ended:
        interrupts.check()
        raise
    except KafkaError as error:
        fail_because(error)
    except NotServed as error:
        fail(f"{where.bootstrap_server}: {error}", FAILED)
    except Refused as error:
        fail(f"{where.bootstrap_server}: {error}", FAILED)
    if page is not None:
        try:
            page.write_text(report.page(document), encoding="utf-8")
        except OSError as error:
            fail(f"cannot write {page}: {error.strerror}")
    if output == Format.TABLE:
        typer.echo(report.text(document, everything=everything), nl=False)
    else:
        print_document(document, output)
    if not document["counts"][KEPT] + document["counts"][DIFFERENT]:
        raise typer.Exit(NOTHING_SHOWN)
    if table.different_rows(document) - expected:
        raise typer.Exit(FAILED)


def _asked(
    bootstrap_server: str, security: Security, wanted: Callable[[str], bool], quick: bool, parallel: int
) -> dict[str, Any]:
    target = Target(bootstrap_server, security, interrupts.asked)
    try:
        _say(f"{plural(target.brokers, 'broker')} at {bootstrap_server}; everything goes to broker {target.node_id}")
        kit = Kit(target, wanted, quick=quick, parallel=parallel)
        plays: list[Play] = sorted(kit.not_played)
        if kit.files:
            target.prepare()
            _say(f"{len(kit.files)} files are played, {len(kit.not_played)} cannot be; names begin with {target.run}")
            plays = kit.run(_say)
    except Ended:
        if interrupts.asked():
            _say("interrupted; removing topics and groups (interrupt again to leave them)")
        raise
    finally:
        for line in target.close():
            _say(f"not removed: {line}")
    about = {
        "kohort": __version__,
        "target": bootstrap_server,
        "brokers": target.brokers,
        "form": "quick" if quick else "full",
    }
    return table.document(table.results(plays, wanted), plays, about)


def _say(line: str) -> None:
    typer.echo(f"kohort: {line}", err=True)
