"""`kohort certificates`: certificates for development, by an authority that exists for this one purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.connect import fail
from kohort.cli.option_objects import App
from kohort.security.certificates import AUTHORITY, SERVER, development_certificates, write_certificates

app = App(no_args_is_help=True)
HOSTS = ("localhost", "127.0.0.1")


@app.callback()
def certificates() -> None:
    """Make certificates for development and tests."""


@app.command("create")
def create(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="Where to write them; made if missing.")
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="A name or address of the server; repeatable [default: localhost, 127.0.0.1]."
        ),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Also a certificate of a client; repeatable.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=825, help="How long they are valid.")] = 90,
) -> None:
    """Make an authority, and certificates of a server and of clients. FOR DEVELOPMENT: in production, get certificates
    of your organisation's authority, which renews and revokes them."""
    names = client or []
    if wrong := [name for name in names if "/" in name or f"{name}.pem" in (SERVER, AUTHORITY) or not name.strip()]:
        raise typer.BadParameter(f"--client {wrong[0]!r}: its file would be {wrong[0]}.pem; choose another name")
    try:
        authority, issued = development_certificates(host or HOSTS, names, days)
        paths = write_certificates(folder, authority, issued)
    except ImportError:
        fail("this command needs the package cryptography: pip install 'kohort[tls]'")
    except FileExistsError as error:
        fail(f"{error} exists; choose another directory, or delete the files of the former authority, all of them")
    except OSError as error:
        fail(f"cannot write to {folder}: {error.strerror}")
    for path in paths:
        typer.echo(str(path))
    typer.echo("These certificates are for development: nobody renews or revokes them.", err=True)
