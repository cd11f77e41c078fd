"""`kohort console`: see `kohort.console`."""

from __future__ import annotations

import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, ClusterOptions, connected, fail
from kohort.cli.console.logins import Logins, logins_of
from kohort.cli.console.tls import Certificate
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import App
from kohort.client.cluster import Cluster
from kohort.client.security.security import Security

DEFAULT_LISTEN = "127.0.0.1:8090"
REQUEST_TIMEOUT_MS = 10_000
CONNECT_TIMEOUT_MS = 3_000
WAIT_S = 60.0

app = App(epilog=EXIT_CODES)


@app.command()
def console(
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address of the pages; port 0 is a free one. One that other machines reach needs --certificate and "
            "--login.",
        ),
    ] = DEFAULT_LISTEN,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    login: Annotated[
        bool,
        typer.Option(
            "--login",
            help="Users log in with their own name and password of the cluster, or with a bearer token. Also without "
            "this flag, if --command-config has sasl.mechanism, but no password and no source of tokens for it.",
        ),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Serve the pages with TLS: PEM, the certificate and its key."
        ),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let users change groups and topics; each change is shown first.")
    ] = False,
    allow_insecure: Annotated[
        bool,
        typer.Option("--allow-insecure", help="Let other machines in without TLS or login; changes need the login."),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Serve requests to this host name too, as users or a proxy on this machine send them; repeatable.",
        ),
    ] = None,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Show groups, their lag and their rebalances in a browser, of any Kafka cluster.

    Reads only, unless --allow-changes is given (docs/how-to/console.md).
    """
    from kohort.console import audit
    from kohort.console.access import Access, OpenCluster
    from kohort.console.app import create_app
    from kohort.console.listening import check_protected, is_loopback, open_socket, own_name, parse, url_of
    from kohort.console.login import Entrance
    from kohort.console.reading.refresher import Refresher
    from kohort.console.serve import keep_pauses_short, serve

    logins = logins_of(where, wanted=login)
    try:
        host, port = parse(listen)
        check_protected(
            host,
            tls=certificate is not None,
            login=logins is not None,
            changes=allow_changes,
            may_be_insecure=allow_insecure,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=["--listen"]) from None
    served = None if certificate is None else Certificate(str(certificate))
    security = _reached(where, logins)

    def opens_with(security: Security) -> OpenCluster:
        return lambda: Cluster(
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
    url = url_of(listening, https=served is not None)
    entrance = None
    if logins is not None:
        entrance = Entrance(
            lambda user, secret: opens_with(logins.security(user, secret)), user_claim=logins.user_claim
        )
    open_cluster = _nobody if logins is not None else opens_with(security)
    refresher = Refresher(open_cluster)
    is_local = is_loopback(host)
    made = create_app(
        open_cluster,
        where.bootstrap_server,
        refresher,
        hosts=frozenset(allow_host or ()) | ({own_name()} if not is_local else set()),
        ending=interrupts.asked,
        access=Access(
            login=logins is not None,
            allow_changes=allow_changes,
            actor=getattr(security.sasl, "username", ""),
            https=served is not None,
            by_address=not is_local,
        ),
        entrance=entrance,
    )
    if logins is None:
        refresher.start()
    audit.configure(sys.stderr)
    typer.echo(f"kohort console of {where.bootstrap_server}: {url}")
    if open_browser:
        # Some browsers end before this returns: those of a terminal.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    def wait_for_end() -> None:
        while not interrupts.wait(WAIT_S):
            if served is not None:
                served.renew()

    keep_pauses_short()
    with interrupts.careful():
        serve(made, listening, wait_for_end, None if served is None else served.context)
    refresher.stop()


def _nobody() -> Cluster:
    raise RuntimeError("with a login, only users have connections")


def _reached(where: ClusterOptions, logins: Logins | None) -> Security:
    """How the console's own connections are made, which there are only without a login. A wrong address is told here
    and not in a page."""
    if logins is not None:
        logins.check(where.bootstrap_server, CONNECT_TIMEOUT_MS)
        return Security()
    security = Security.of(where.security_properties())
    with connected(where) as cluster:
        cluster.nodes()
    return security
