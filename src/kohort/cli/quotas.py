"""`kohort quotas`: how much clients may use of each broker, over the public protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import typer

from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, ClusterOptions, connected, fail
from kohort.cli.option_objects import App, near_word
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table
from kohort.client.admin.quotas import CLIENT_ID, IP, OF_ADDRESSES, OF_CLIENTS, TYPES, USER, ClientQuotas
from kohort.client.errors import ServerError
from kohort.wire.errors import ErrorCode

app = App(epilog=EXIT_CODES, no_args_is_help=True)

KEYS = (*OF_CLIENTS, *OF_ADDRESSES)
DEFAULT = "<default>"
OfUser = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user, without User: before it.")]
OfDefaultUser = Annotated[
    bool, typer.Option("--default-user", help="Every user without a quota of the same kind of its own.")
]
OfClient = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="The clients with this client.id.")]
OfDefaultClient = Annotated[bool, typer.Option("--default-client-id", help="Every client id without one of its own.")]
OfIp = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address that clients come from.")]
OfDefaultIp = Annotated[bool, typer.Option("--default-ip", help="Every address without one of its own.")]


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE",
            help="producer_byte_rate and consumer_byte_rate in bytes a second, request_percentage (100 is all the time "
            "of one thread), controller_mutation_rate in partitions a second; of an address connection_creation_rate "
            "in connections a second.",
        ),
    ],
    user: OfUser = None,
    default_user: OfDefaultUser = False,
    client_id: OfClient = None,
    default_client_id: OfDefaultClient = False,
    ip: OfIp = None,
    default_ip: OfDefaultIp = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Set quotas of a user, a client id, both, or an address. Others that it has stay."""
    entity = _entity((user, default_user), (client_id, default_client_id), (ip, default_ip))
    values = dict(map(_value, quotas))
    if len(values) < len(quotas):
        raise typer.BadParameter("a quota is set twice")
    _check_keys(entity, values)
    with connected(where) as cluster:
        try:
            cluster.alter_client_quotas(entity, values)
        except ServerError as error:
            if error.code == ErrorCode.INVALID_REQUEST and entity.get(IP) is not None:
                raise error.because("kohort takes addresses as numbers, not names: --ip 10.0.0.7") from None
            raise
    for key, value in values.items():
        typer.echo(f"set: {_words(entity)}: {key}={_text(value)}")


@app.command("list")
def list_quotas(
    user: OfUser = None,
    default_user: OfDefaultUser = False,
    client_id: OfClient = None,
    default_client_id: OfDefaultClient = False,
    ip: OfIp = None,
    default_ip: OfDefaultIp = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List quotas: all, or those whose entities have the given parts."""
    wanted = _parts((user, default_user), (client_id, default_client_id), (ip, default_ip))
    with connected(where) as cluster:
        found = cluster.client_quotas(wanted)
    if output != Format.TABLE:
        documents = [{"entity": quotas.entity, "quotas": quotas.values} for quotas in found]
        print_document(documents, output)
        return
    columns = [name("USER"), name("CLIENT-ID"), name("IP"), name("QUOTA"), number("VALUE")]
    print_table(columns, [row for quotas in found for row in _rows(quotas)])


@app.command("delete")
def delete_quotas(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="QUOTA", help="Only these quotas.", show_default=False)
    ] = None,
    user: OfUser = None,
    default_user: OfDefaultUser = False,
    client_id: OfClient = None,
    default_client_id: OfDefaultClient = False,
    ip: OfIp = None,
    default_ip: OfDefaultIp = False,
    yes: Yes = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete the quotas of exactly this entity. Asks first; without a terminal it needs --yes."""
    entity = _entity((user, default_user), (client_id, default_client_id), (ip, default_ip))
    wanted = [_key(key) for key in keys or ()]
    _check_keys(entity, wanted)
    with connected(where) as cluster:
        found = [quotas.values for quotas in cluster.client_quotas(entity, strict=True)]
        values = {key: value for key, value in (found[0] if found else {}).items() if not wanted or key in wanted}
        if not values:
            fail(f"{_words(entity)} has no such quota" if wanted else f"{_words(entity)} has no quotas")
        if not yes:
            for key, value in values.items():
                typer.echo(f"{_words(entity)}: {key}={_text(value)}")
            confirm(f"Delete {plural(len(values), 'quota')}?", yes=yes, declined="nothing was deleted")
        cluster.alter_client_quotas(entity, dict.fromkeys(values))
    for key, value in values.items():
        typer.echo(f"deleted: {_words(entity)}: {key}={_text(value)}")


# -- words

_Given = tuple[str | None, bool]
"""A name, and whether the default was given."""


def _parts(user: _Given, client_id: _Given, ip: _Given) -> dict[str, str | None]:
    """The parts of an entity that the options name. Raises BadParameter."""
    parts: dict[str, str | None] = {}
    for kind, (given, is_default) in zip(TYPES, (user, client_id, ip), strict=True):
        if given is not None and is_default:
            raise typer.BadParameter(f"choose one of --{kind} and --default-{kind}")
        if given == "":
            raise typer.BadParameter(f"--{kind} is empty; the default is --default-{kind}")
        if given is not None or is_default:
            parts[kind] = given
    if IP in parts and len(parts) > 1:
        raise typer.BadParameter("quotas of addresses do not go with users and client ids")
    if user[0] is not None and user[0].startswith("User:"):
        raise typer.BadParameter(f"quotas are of users by name; write {user[0].removeprefix('User:')!r}")
    return parts


def _entity(user: _Given, client_id: _Given, ip: _Given) -> dict[str, str | None]:
    parts = _parts(user, client_id, ip)
    if not parts:
        raise typer.BadParameter(
            "say whose: --user, --default-user, --client-id, --default-client-id, or both of a kind; or --ip, "
            "--default-ip"
        )
    return parts


def _key(word: str) -> str:
    key = word.strip().lower().replace("-", "_")
    if key not in KEYS:
        near = near_word(key, KEYS)
        raise typer.BadParameter(
            f"{word!r} is no quota; " + (f"did you mean {near}?" if near else f"it takes {', '.join(KEYS)}")
        )
    return key


def _value(text: str) -> tuple[str, float]:
    word, equals, amount = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is no quota; write QUOTA=VALUE")
    key = _key(word)
    try:
        value = float(amount)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"{text!r}: a quota is a number above 0; `kohort quotas delete` takes it away")
    if not value.is_integer() and key.endswith(("byte_rate", "creation_rate")):
        raise typer.BadParameter(f"{text!r}: {key} is a whole number")
    return key, value


def _check_keys(entity: dict[str, str | None], keys: Iterable[str]) -> None:
    fit = OF_ADDRESSES if IP in entity else OF_CLIENTS
    for key in keys:
        if key not in fit:
            whose = "an address" if IP in entity else "users and client ids"
            raise typer.BadParameter(f"{key} is no quota of {whose}; it takes {', '.join(fit)}")


def _words(entity: dict[str, str | None]) -> str:
    return ", ".join(
        f"{kind} {entity[kind]}" if entity[kind] is not None else f"default {kind}" for kind in TYPES if kind in entity
    )


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _rows(quotas: ClientQuotas) -> list[list[str | None]]:
    names = [(quotas.entity[kind] or DEFAULT) if kind in quotas.entity else None for kind in (USER, CLIENT_ID, IP)]
    return [[*names, key, _text(value)] for key, value in sorted(quotas.values.items())]
