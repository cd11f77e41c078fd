"""`kohort users`: users with SCRAM credentials, of a running cluster or in a stopped server's data directory.

A password comes from the terminal, from a file or from stdin, never from the arguments, which other users of the
machine see. The server gets what it is hashed to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, ClusterOptions, connected, fail
from kohort.cli.option_objects import App, choice
from kohort.cli.output import Format, Output, name, print_document, print_table
from kohort.client.admin import users
from kohort.client.errors import KafkaError
from kohort.security.scram import CODES, DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS
from kohort.wire.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kohort.wire.schemas.describe_user_scram_credentials import DescribeUserScramCredentialsResponse

app = App(epilog=EXIT_CODES, no_args_is_help=True)

UserName = Annotated[str, typer.Argument(metavar="NAME")]
Mechanism = Annotated[
    str, typer.Option(metavar="MECHANISM", help="One of SCRAM-SHA-256, SCRAM-SHA-512.", **choice(tuple(CODES)))
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="The data directory of a server that is stopped, instead of a running cluster: for the first user.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="With --data-dir: the server's file of settings."),
]


@app.command("add")
def add(
    user: UserName,
    mechanism: Mechanism = "SCRAM-SHA-512",
    iterations: Annotated[
        int, typer.Option(min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="Rounds of the password's hash.")
    ] = DEFAULT_ITERATIONS,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with the password, - for stdin [default: asks at the terminal]."),
    ] = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Add a user, or give a user another password."""
    request = users.addition(user, _password(password_file), mechanism, iterations)
    _alter(request, data_dir, config, where)


@app.command("delete")
def delete(
    user: UserName,
    mechanism: Mechanism = "SCRAM-SHA-512",
    yes: Yes = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete a user's credential of a mechanism. Asks first; without a terminal it needs --yes.

    Connections that are open stay open.
    """
    confirm(f"Delete the {mechanism} credential of {user}?", yes=yes, declined="nothing was deleted")
    _alter(users.deletion(user, mechanism), data_dir, config, where)


@app.command("list")
def list_users(
    data_dir: DataDir = None,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List users with their mechanisms."""
    if data_dir is not None:
        answer = _ask_stopped(data_dir, config, users.describe_request(None), DescribeUserScramCredentialsResponse)
        found = _failing(lambda: users.described(answer))
    else:
        with connected(where) as cluster:
            found = cluster.scram_users()
    if output != Format.TABLE:
        print_document([{"user": one.name, "iterations": one.iterations} for one in found], output)
        return
    print_table([name("USER"), name("MECHANISMS")], [(one.name, ",".join(one.iterations)) for one in found])


def _alter(
    request: AlterUserScramCredentialsRequest, data_dir: Path | None, config: Path | None, where: ClusterOptions
) -> None:
    if data_dir is None:
        with connected(where) as cluster:
            cluster.alter_scram_users(request)
        return
    answer = _ask_stopped(data_dir, config, request, AlterUserScramCredentialsResponse)
    _failing(lambda: users.check_altered(answer))


def _failing(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KafkaError as error:
        fail(error.message)


def _ask_stopped(data_dir: Path, file: Path | None, request: Any, response: type) -> Any:
    from kohort.config import ConfigError, load
    from kohort.server.server import StorageError, WrongDirectory
    from kohort.server.stopped import ask_stopped

    try:
        config = load({"data.dir": str(data_dir)}, file=file)
        return ask_stopped(config, request, response, 0)
    except (ConfigError, StorageError, WrongDirectory) as error:
        fail(str(error))


def _password(file: Path | None) -> str:
    if file is None:
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    elif str(file) == "-":
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        try:
            password = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeError) as error:
            raise typer.BadParameter(f"--password-file: cannot read {file}: {error}") from None
    if not password:
        raise typer.BadParameter("the password is empty")
    return password
