"""`kohort acls`: list, add, remove and check ACLs, over the public protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from kohort.cli.acls.texts import (
    ALL,
    KINDS,
    RESOURCE_HELP,
    address_of,
    check_supported,
    document_of,
    host_of,
    line_of,
    one_resource_of,
    operations_of,
    principal_of,
    resource_of,
    user_of,
)
from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, FAILED, UNREACHABLE, ClusterOptions, connected, fail
from kohort.cli.option_objects import App
from kohort.cli.output import Column, Format, Output, name, plural, print_document, print_table
from kohort.client.admin.acls import (
    ALLOW,
    ANY,
    DENY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PREFIXED,
    RESOURCES,
    SUPPORTED,
    AclBinding,
    AclFilter,
)
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.wire.errors import ErrorCode

app = App(epilog=EXIT_CODES, no_args_is_help=True)

User = Annotated[str, typer.Argument(metavar="USER", help="NAME for User:NAME; * for everybody.")]
CHECKED = ("topic", "group", "cluster", "transactional-id")
OPERATION_HELP = ", ".join(dict.fromkeys(operation for kind in CHECKED for operation in SUPPORTED[kind]))
OPERATIONS_HELP = f"{OPERATION_HELP}, or all."
OnUser = Annotated[str | None, typer.Option("--user", metavar="USER", help="ACLs of this principal.")]
OnOperation = Annotated[str | None, typer.Option("--operation", help="ACLs about this operation.")]
OnResource = Annotated[str | None, typer.Option("--resource", help=RESOURCE_HELP)]
OnHost = Annotated[str | None, typer.Option("--host", help="ACLs about this address.")]
Matching = Annotated[
    bool, typer.Option("--matching", help="All ACLs that apply to the resource, also by prefix and *.")
]
MatchingToo = Annotated[
    bool,
    typer.Option(
        "--matching",
        help="All ACLs that apply to the resource, also by prefix and *: removes rules that cover other names too.",
    ),
]
Literal = Annotated[bool, typer.Option("--literal", help="With --resource: only ACLs on exactly this name.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="With --resource: only ACLs on this prefix.")]


@app.command("add")
def add(
    user: User,
    operations: Annotated[str, typer.Argument(metavar="OPERATION,...", help=OPERATIONS_HELP)],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help=RESOURCE_HELP)],
    deny: Annotated[bool, typer.Option("--deny", help="Deny the operations instead of allowing them.")] = False,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="For all names that begin with NAME.")] = False,
    host: Annotated[str, typer.Option("--host", help="An address or a network; * for all.")] = "*",
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Allow or deny a user operations on a resource."""
    principal = user_of(user)
    words = operations_of(operations)
    kind, resource_name = one_resource_of(resource)
    check_supported(words, kind)
    pattern = PREFIXED if prefixed else LITERAL
    permission = DENY if deny else ALLOW
    address = host_of(host)
    bindings = [
        AclBinding(kind, resource_name, pattern, principal, address, OPERATIONS[word], permission) for word in words
    ]
    with connected(where) as cluster:
        there = _there(cluster, bindings[0])
        cluster.create_acls(bindings)
    for binding in bindings:
        typer.echo(f"{'already there' if binding in there else 'added'}: {line_of(binding)}")


def _there(cluster: Cluster, like: AclBinding) -> tuple[AclBinding, ...]:
    """The ACLs that differ from this one in the operation only; none if the user may not list them."""
    wanted = AclFilter(like.resource, like.name, like.pattern, like.principal, like.host, permission=like.permission)
    try:
        return cluster.acls(wanted)
    except ServerError:
        return ()


@app.command("list")
def list_acls(
    user: OnUser = None,
    operation: OnOperation = None,
    resource: OnResource = None,
    literal: Literal = False,
    prefixed: Prefixed = False,
    matching: Matching = False,
    host: OnHost = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List ACLs."""
    wanted = _filter(user, operation, resource, host, _pattern(literal, prefixed, matching))
    with connected(where) as cluster:
        found = cluster.acls(wanted)
    documents = sorted((document_of(acl) for acl in found), key=lambda words: tuple(words.values()))
    if output != Format.TABLE:
        print_document(documents, output)
        return
    columns = [
        name("PRINCIPAL"),
        Column("PERMISSION"),
        Column("OPERATION"),
        Column("RESOURCE"),
        name("NAME"),
        Column("PATTERN"),
        Column("HOST"),
    ]
    print_table(columns, [list(words.values()) for words in documents])


@app.command("remove")
def remove(
    user: OnUser = None,
    operation: OnOperation = None,
    resource: OnResource = None,
    literal: Literal = False,
    prefixed: Prefixed = False,
    matching: MatchingToo = False,
    host: OnHost = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all ACLs.")] = False,
    yes: Yes = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Remove the ACLs that the options select. Asks first; without a terminal it needs --yes."""
    wanted = _filter(user, operation, resource, host, _pattern(literal, prefixed, matching))
    if wanted == AclFilter() and not every:
        raise typer.BadParameter("say which ACLs: --user, --operation, --resource or --host; or --all")
    with connected(where) as cluster:
        if not yes:
            found = cluster.acls(wanted)
            if not found:
                fail("no ACL was selected")
            for acl in found:
                typer.echo(line_of(acl))
            confirm(f"Remove {plural(len(found), 'ACL')}?", yes=yes, declined="nothing was removed")
        gone = cluster.delete_acls(wanted)
    for acl in gone:
        typer.echo(f"removed: {line_of(acl)}")
    if not gone:
        fail("no ACL was selected")


@app.command("check")
def check(
    user: User,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=f"{OPERATION_HELP}.")],
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help=f"{KINDS}.")],
    host: Annotated[str, typer.Option("--host", help="The address that the user comes from.")] = "127.0.0.1",
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Say whether a user may do something, and which rule decides.

    Exits with 1 if it is denied, with 3 if the cluster does not tell. Needs DESCRIBE and DESCRIBE_CONFIGS of the
    cluster.
    """
    from kohort.cli.acls.check import rule_of

    principal = user_of(user)
    [word, *more] = operations_of(operation)
    if more:
        raise typer.BadParameter("check takes one operation")
    if word == ALL:
        raise typer.BadParameter(f"{ALL} cannot be checked; check one operation")
    kind, resource_name = one_resource_of(resource)
    if kind not in (RESOURCES[checked] for checked in CHECKED):
        raise typer.BadParameter(f"{resource!r} cannot be checked; it takes {KINDS}")
    check_supported([word], kind)
    address = address_of(host)
    with connected(where) as cluster:
        try:
            rule = rule_of(cluster, principal, address, OPERATIONS[word], kind, resource_name)
        except ServerError as error:
            fail(f"cannot tell: {error.message}{_needed(error)}", UNREACHABLE)
    reason = str(rule.acl) if rule.acl is not None else rule.reason
    typer.echo(f"{'allowed' if rule.allowed else 'denied'}: {reason}")
    if not rule.allowed:
        raise typer.Exit(FAILED)


def _needed(error: ServerError) -> str:
    denied = error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return "; the command needs DESCRIBE and DESCRIBE_CONFIGS of the cluster" if denied else ""


def _pattern(literal: bool, prefixed: bool, matching: bool) -> int:
    chosen = [code for code, given in ((LITERAL, literal), (PREFIXED, prefixed), (MATCH, matching)) if given]
    if len(chosen) > 1:
        raise typer.BadParameter("choose one of --literal, --prefixed and --matching")
    return chosen[0] if chosen else ANY


def _filter(user: str | None, operation: str | None, resource: str | None, host: str | None, pattern: int) -> AclFilter:
    kind, resource_name = resource_of(resource) if resource is not None else (ANY, None)
    if pattern != ANY and resource_name is None:
        raise typer.BadParameter("--literal, --prefixed and --matching need --resource")
    words = operations_of(operation) if operation is not None else []
    if len(words) > 1:
        raise typer.BadParameter("--operation takes one operation")
    return AclFilter(
        resource=kind,
        name=resource_name,
        pattern=pattern,
        principal=principal_of(user) if user is not None else None,
        host=host,
        operation=OPERATIONS[words[0]] if words else ANY,
    )
