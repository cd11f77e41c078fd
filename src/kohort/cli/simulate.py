"""`kohort simulate`: the real broker and coordinator in a simulated world whose faults a seed decides."""

from __future__ import annotations

import random
import time
from typing import Annotated

import typer

from kohort.cli.option_objects import App
from kohort.cli.output import plural
from kohort.simulator.many import run_many
from kohort.simulator.shrink import shrink
from kohort.simulator.simulate import Result, run, run_plan

LAST_LINES = 40
"""Lines of a failing run's story that are printed."""

app = App()


@app.command(epilog="Exit codes: 0 no promise was broken, 1 one was, 2 wrong usage.")
def simulate(
    seed: Annotated[int | None, typer.Option(min=0, help="The first seed [default: a random one].")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds [default: 1, or until --minutes].")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after this time.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    duration: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Simulated time with faults."),
    ] = None,
    story: Annotated[bool, typer.Option("--story", help="Print everything that happens in one run.")] = False,
    no_shrink: Annotated[bool, typer.Option("--no-shrink", help="Do not shrink a failing run.")] = False,
) -> None:
    """Run the coordinator, broker and storage in a simulated world with faults, and check every promise.

    A seed decides everything: the faults (cut connections, crashes, disk errors, lost leases, …), the members, and the
    time of each event. The same seed gives the same run and the same digest on every machine. The command shrinks a
    failing run before it prints it.
    """
    first = seed if seed is not None else random.randrange(1 << 40)
    duration_ms = None if duration is None else int(duration * 1000)
    if seeds is None and minutes is None:
        result = run(first, duration_ms=duration_ms, telling=story)
        if story:
            typer.echo("\n".join([*result.plan.lines(), *result.story]))
        typer.echo(f"seed {first}: digest {result.digest}, {result.events} events, {result.now / 1000:.1f} s simulated")
        failed = [] if result.violation is None else [first]
    else:
        failed = _many(first, seeds, minutes, jobs, duration_ms)
    for failing in failed[:1]:
        _explain(failing, duration_ms, no_shrink)
    raise typer.Exit(1 if failed else 0)


def _many(first: int, seeds: int | None, minutes: float | None, jobs: int, duration_ms: int | None) -> list[int]:
    began = time.monotonic()
    done = events = 0
    failed: list[tuple[int, str]] = []
    told = began
    for tally in run_many(first, seeds, minutes=minutes, jobs=jobs, duration_ms=duration_ms):
        done += tally.seeds
        events += tally.events
        failed.extend(tally.failed)
        for number, violation in tally.failed:
            typer.echo(f"seed {number}: {violation}", err=True)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            typer.echo(f"{done} seeds in {told - began:.0f} s", err=True)
    seconds = time.monotonic() - began
    broken = plural(len(failed), "violation")
    typer.echo(f"{plural(done, 'seed')} from {first} on, {events} events in {seconds:.1f} s: {broken}")
    return sorted(number for number, _ in failed)


def _explain(seed: int, duration_ms: int | None, no_shrink: bool) -> None:
    """Print the violation, how to repeat it, and the end of the story, shrunk if possible."""
    whole = run(seed, duration_ms=duration_ms, telling=True)
    assert whole.violation is not None
    option = "" if duration_ms is None else f" --duration {duration_ms / 1000:g}"
    typer.echo(f"\nviolated: {whole.violation}\nrepeat:   kohort simulate --seed {seed}{option}")
    shown: Result = whole
    if not no_shrink:
        plan = shrink(whole.plan, whole.violation.check)
        shown = run_plan(plan, telling=True)
        typer.echo("smaller:")
    typer.echo("\n".join(shown.plan.lines()))
    group = whole.violation.group
    lines = [line for line in shown.story if not group or group in line or " server:" in line]
    typer.echo("\n".join(["…" * (len(lines) > LAST_LINES), *lines[-LAST_LINES:]]))
    if shown.scenario:
        typer.echo("\nwhat reached the group, as a beginning of a scenario:\n")
        typer.echo("\n".join(shown.scenario))
