"""`kohort gateway import-offsets` and `export-offsets`: before the switch to a gateway, and before the way back."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.confirmation import DRY_RUN, Execute, YesToExecute, confirm
from kohort.cli.connect import ClusterOptions, Flags, complain, connected, fail
from kohort.cli.groups.lookup import absent, selected
from kohort.cli.interrupt import interrupts
from kohort.cli.output import plural
from kohort.gateway.offsets import GroupCopy, carry_out, planned

UNCHANGED = "nothing was changed"
UPSTREAM, GATEWAY = "the upstream cluster", "the gateway"
FLAGS = Flags("--upstream and --gateway", "--upstream-config or --gateway-config names")

Names = Annotated[list[str] | None, typer.Argument(metavar="GROUP|PATTERN", help="All groups of consumers by default.")]
UpstreamAddress = Annotated[
    str, typer.Option("--upstream", metavar="HOST:PORT,...", help="Brokers of the cluster that has the records.")
]
GatewayAddress = Annotated[str, typer.Option("--gateway", metavar="HOST:PORT", help="The gateway's bootstrap address.")]
UpstreamConfig = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Properties of the connection to the upstream.")
]
GatewayConfig = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Properties of the connection to the gateway.")
]
Rewind = Annotated[bool, typer.Option("--rewind", help="Also set offsets that go back.")]


def import_offsets(
    upstream: UpstreamAddress,
    names: Names = None,
    gateway: GatewayAddress = "127.0.0.1:9092",
    upstream_config: UpstreamConfig = None,
    gateway_config: GatewayConfig = None,
    rewind: Rewind = False,
    execute: Execute = False,
    yes: YesToExecute = False,
) -> None:
    """Copy groups' offsets from the upstream cluster here.

    Shows what would change; --execute does it, and asks first. Groups with members are left out: stop their consumers,
    copy, and start them with the gateway's address.
    """
    ends = ((UPSTREAM, ClusterOptions(upstream, upstream_config)), (GATEWAY, ClusterOptions(gateway, gateway_config)))
    _transfer(ends, names or [], rewind=rewind, execute=execute, yes=yes)


def export_offsets(
    upstream: UpstreamAddress,
    names: Names = None,
    gateway: GatewayAddress = "127.0.0.1:9092",
    upstream_config: UpstreamConfig = None,
    gateway_config: GatewayConfig = None,
    rewind: Rewind = False,
    execute: Execute = False,
    yes: YesToExecute = False,
) -> None:
    """Copy groups' offsets back to the upstream cluster.

    Shows what would change; --execute does it, and asks first. Groups with members are left out: stop their consumers,
    copy, and start them with the upstream cluster's address.
    """
    ends = ((GATEWAY, ClusterOptions(gateway, gateway_config)), (UPSTREAM, ClusterOptions(upstream, upstream_config)))
    _transfer(ends, names or [], rewind=rewind, execute=execute, yes=yes)


def _transfer(
    ends: tuple[tuple[str, ClusterOptions], tuple[str, ClusterOptions]],
    names: list[str],
    *,
    rewind: bool,
    execute: bool,
    yes: bool,
) -> None:
    (source_name, at_source), (target_name, at_target) = ends
    with ExitStack() as stack, interrupts.careful():
        source = stack.enter_context(connected(at_source, flags=FLAGS))
        target = stack.enter_context(connected(at_target, flags=FLAGS))
        if source.cluster_id() != target.cluster_id():
            fail(
                f"these are two clusters: {source.cluster_id()} and {target.cluster_id()}; --upstream is the cluster "
                f"before which the gateway stands; {UNCHANGED}"
            )
        listed = selected(source, names)
        missing = absent(source, names, listed)
        copies = list(
            planned(source, target, [one.group_id for one in listed], (source_name, target_name), rewind=rewind)
        )
        for copy in copies:
            _show(copy)
        for message in missing:
            complain(message)
        due = [copy for copy in copies if copy.changes]
        if not due:
            typer.echo(f"there is nothing to copy; {UNCHANGED}")
        elif not execute:
            typer.echo(f"{UNCHANGED}: {DRY_RUN}")
        else:
            count = sum(len(copy.changes) for copy in due)
            what = f"Set {plural(count, 'offset')} of {plural(len(due), 'group')} at {target_name}?"
            confirm(what, yes=yes, declined=UNCHANGED)
            for copy in due:
                interrupts.check()
                carry_out(target, copy, interrupts.check)
                typer.echo(f"group {copy.group}: {plural(len(copy.changes), 'offset')} set at {target_name}")
        if missing or any(copy.why_not for copy in copies):
            raise typer.Exit(1)


def _show(copy: GroupCopy) -> None:
    if copy.why_not:
        typer.echo(f"group {copy.group}: left out: {copy.why_not}")
        return
    parts = [f"{plural(len(copy.changes), 'offset')} to set", f"{copy.equal} equal"]
    if copy.backwards:
        parts.append(f"{len(copy.backwards)} left out, which would go back (--rewind)")
    typer.echo(f"group {copy.group}: {', '.join(parts)}")
    for (topic, index), (before, after) in copy.changes.items():
        typer.echo(f"  {topic}-{index}: {'none' if before is None else before.offset} -> {after.offset}")
    for (topic, index), (kept, left) in copy.backwards.items():
        typer.echo(f"  {topic}-{index}: stays at {kept.offset}, not {left.offset}")
