"""Principals, operations, resources and ACLs as words of a command line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

import typer

from kohort.cli.option_objects import near_word
from kohort.client.admin.acls import OPERATIONS, PATTERNS, PERMISSIONS, PREFIXED, RESOURCES, SUPPORTED, AclBinding

CLUSTER = "kafka-cluster"
ALL = "all"
KINDS = "topic:NAME, group:NAME, transactional-id:NAME, or cluster"
RESOURCE_HELP = f"{KINDS}. NAME may be *, which stands for all."


def principal_of(text: str) -> str:
    """The principal of a user: `alice` stands for User:alice, and `*` for User:*, which is everybody."""
    return text if ":" in text else f"User:{text}"


def user_of(text: str) -> str:
    """A principal that a client can have. Raises BadParameter."""
    principal = principal_of(text)
    kind, _, user = principal.partition(":")
    if kind != "User" or not user:
        raise typer.BadParameter(f"{text!r} is no user: clients are User:NAME; write NAME, or User:NAME")
    return principal


def operations_of(text: str) -> list[str]:
    """`read,describe`. Raises BadParameter."""
    found = []
    for word in text.split(","):
        operation = word.strip().lower().replace("_", "-")
        if operation not in OPERATIONS:
            near = near_word(operation, OPERATIONS)
            raise typer.BadParameter(
                f"{word!r} is no operation; "
                + (f"did you mean {near}?" if near else f"it takes {', '.join(OPERATIONS)}")
            )
        found.append(operation)
    return found


def check_supported(operations: Iterable[str], kind: int) -> None:
    """Raises BadParameter for an operation that resources of this kind do not have."""
    resource = _word(RESOURCES, kind)
    for operation in operations:
        if operation not in (ALL, *SUPPORTED[resource]):
            raise typer.BadParameter(
                f"{operation} is no operation on a {resource}; it takes {', '.join((*SUPPORTED[resource], ALL))}"
            )


def resource_of(text: str) -> tuple[int, str]:
    """Type and name. Raises BadParameter."""
    word, colon, name = text.partition(":")
    kind = word.strip().lower()
    if kind == "cluster" and name in ("", CLUSTER):
        return RESOURCES[kind], CLUSTER
    if kind in RESOURCES and colon and name:
        return RESOURCES[kind], name
    near = near_word(kind, RESOURCES) if kind not in RESOURCES else None
    meant = near if near in (None, "cluster") else f"{near}:{name or 'NAME'}"
    raise typer.BadParameter(
        f"{text!r} is no resource; " + (f"did you mean {meant}?" if meant else f"it takes {KINDS}")
    )


def one_resource_of(text: str) -> tuple[int, str]:
    """A resource with a name that can exist. Raises BadParameter."""
    kind, name = resource_of(text)
    if re.search(rf",\s*({'|'.join(RESOURCES)})(:|,|$)", name):
        raise typer.BadParameter(f"{text!r} is several resources; name one")
    if kind == RESOURCES["topic"] and name != "*" and not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name):
        raise typer.BadParameter(f"{name!r} is no topic name; it has letters, digits, '.', '_' and '-', at most 249")
    return kind, name


def host_of(text: str) -> str:
    """An address, a network or `*`. Raises BadParameter."""
    try:
        if text != "*":
            ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no address, such as 10.0.0.7, and no network, such as 10.0.0.0/8; host names never match",
            param_hint=["--host"],
        ) from None
    return text


def address_of(text: str) -> str:
    """Raises BadParameter."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no address, such as 10.0.0.7", param_hint=["--host"]) from None


def _word(words: dict[str, int], code: int) -> str:
    return next((word for word, known in words.items() if known == code), str(code))


def document_of(acl: AclBinding) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": _word(PERMISSIONS, acl.permission),
        "operation": _word(OPERATIONS, acl.operation),
        "resource": _word(RESOURCES, acl.resource),
        "name": acl.name,
        "pattern": _word(PATTERNS, acl.pattern),
        "host": acl.host,
    }


def line_of(acl: AclBinding) -> str:
    words = document_of(acl)
    prefix = "prefixed " if acl.pattern == PREFIXED else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return f"{words['permission']} {acl.principal} {words['operation']} on {prefix}{words['resource']} {acl.name}{host}"
