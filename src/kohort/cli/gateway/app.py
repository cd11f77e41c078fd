"""`kohort gateway`: see `kohort.gateway` and docs/gateway.md."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.gateway.transfer import export_offsets, import_offsets
from kohort.cli.option_objects import App
from kohort.cli.start import chosen_config
from kohort.client.security.security import Security
from kohort.client.wire.routing import parse_addresses
from kohort.config import ConfigError

app = App(
    invoke_without_command=True,
    epilog="Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage or setting, 3 cannot reach a cluster, 69 cannot "
    "listen on an address, 70 a bug, 71 no memory or threads, 74 the data directory or its disk failed.",
)


@app.callback()
def gateway(
    context: typer.Context,
    upstream: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Brokers of the cluster that has the records.")
    ] = None,
    upstream_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Properties of the gateway's own connections: security.protocol, ssl.…, sasl.…. With SASL, clients "
            "log in at the upstream cluster too, with their own names.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The bootstrap address of clients [default: 127.0.0.1:9092]. The listeners of the upstream cluster's "
            "brokers are at the ports above it.",
            show_default=False,
        ),
    ] = None,
    broker_ports: Annotated[
        str | None,
        typer.Option(
            metavar="PORT,...", help="The ports of these listeners, instead of those above.", show_default=False
        ),
    ] = None,
    advertised_listeners: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="The name of this machine for clients, instead of the listener's."),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the groups and their offsets; made when missing.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="KOHORT_STORAGE",
            show_envvar=False,
            help="A PostgreSQL (postgresql://...) instead of the directory: of several gateways with the same URL one "
            "serves, and another takes over (docs/postgres.md).",
        ),
    ] = None,
    in_memory: Annotated[bool, typer.Option("--in-memory", help="Keep groups and offsets in memory alone.")] = False,
    config: Annotated[Path | None, typer.Option(help="A .properties or .toml file of settings.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
    ] = None,
) -> None:
    """Run a gateway: kohort's groups before another Kafka cluster (experimental).

    Clients change their bootstrap address and nothing else. Records stay in the upstream cluster; groups, offsets and
    everything that kohort groups shows are here. docs/gateway.md has the switch and the way back.

    Missing yet: several gateways that serve side by side, offsets in transactions.
    """
    if context.invoked_subcommand is not None:
        return
    if upstream is None:
        raise typer.BadParameter("name the brokers of the upstream cluster: HOST:PORT,...", param_hint=["--upstream"])
    if data_dir is None and storage is None and not in_memory:
        raise typer.BadParameter(
            "name a directory of the gateway's own, a PostgreSQL with --storage, or --in-memory for a trial",
            param_hint=["--data-dir"],
        )
    try:
        brokers = parse_addresses(upstream)
        ports = [_port(word) for word in (broker_ports or "").split(",") if word.strip()]
        security = Security() if upstream_config is None else Security.read(upstream_config)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    flags = {
        "data.dir": data_dir,
        "storage": storage,
        "listeners": listen,
        "advertised.listeners": advertised_listeners,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        chosen = chosen_config(config, setting or [], given, in_memory)
        gc.disable()  # until the server is ready
        from kohort.gateway.run import run

        code = run(chosen, brokers, security, ports)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    sys.exit(code)


def _port(word: str) -> int:
    if not word.strip().isdecimal() or not 0 < int(word) < 65536:
        raise ValueError(f"--broker-ports has {word!r}, which is no port (1 to 65535)")
    return int(word)


app.command("import-offsets")(import_offsets)
app.command("export-offsets")(export_offsets)
