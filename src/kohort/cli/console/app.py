"""`kohort console`: see `kohort.console`."""

from __future__ import annotations

import threading
import webbrowser
from typing import Annotated

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, ClusterOptions, connected, fail
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.client.cluster import Cluster
from kohort.client.security.security import Security

DEFAULT_LISTEN = "127.0.0.1:8090"
REQUEST_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MS = 3_000
WAIT_S = 3_600.0

app = App(epilog=EXIT_CODES)


@app.command()
def console(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the pages: of loopback only; port 0 is a free one.")
    ] = DEFAULT_LISTEN,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Serve requests to this host name too, as a proxy on this machine sends them; repeatable.",
        ),
    ] = None,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Show groups, their lag and their rebalances in a browser. Reads only, from any Kafka cluster.

    The pages have no login, so they can only be reached from this machine (docs/how-to/console.md).
    """
    from kohort.console.app import create_app
    from kohort.console.listening import open_socket, parse, url_of
    from kohort.console.reading.refresher import Refresher
    from kohort.console.serve import serve

    try:
        host, port = parse(listen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=["--listen"]) from None
    security = Security.of(where.security_properties())
    with connected(where) as cluster:  # a wrong address is told here and not in a page
        cluster.nodes()

    def open_cluster() -> Cluster:
        return Cluster(
            where.bootstrap_server,
            client_id="kohort-console",
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            api_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=CONNECT_TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            security=security,
        )

    try:
        listening = open_socket(host, port)
    except OSError as error:
        fail(f"cannot listen on {listen}: {error.strerror}; --listen takes another address")
    url = url_of(listening)
    refresher = Refresher(open_cluster)
    made = create_app(
        open_cluster, where.bootstrap_server, refresher, hosts=frozenset(allow_host or ()), ending=interrupts.asked
    )
    refresher.start()
    typer.echo(f"kohort console of {where.bootstrap_server}: {url}")
    if open_browser:
        # Some browsers end before this returns: those of a terminal.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    with interrupts.careful():
        serve(made, listening, _wait_for_end)
    refresher.stop()


def _wait_for_end() -> None:
    while not interrupts.wait(WAIT_S):
        pass
