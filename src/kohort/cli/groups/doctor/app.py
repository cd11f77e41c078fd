"""`kohort groups doctor`: what is wrong with groups, for people and for monitors.

The rules are pure and look at two surveys, at the ages of unread records, and at the journal where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, FAILED, ClusterOptions, complete_groups, connected, fail
from kohort.cli.groups.doctor import members, offsets, stories
from kohort.cli.groups.doctor.case import ORDER, Case, Finding, Severity, worst_first
from kohort.cli.groups.doctor.collection import Collected, collect
from kohort.cli.groups.lookup import absent, selected
from kohort.cli.groups.shares import rules
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import choice, milliseconds
from kohort.cli.output import Format, Output, plural, print_document
from kohort.client.admin.groups import SHARE

EPILOG = "Exit codes: 0 nothing found, 1 findings, or failed or not found, 2 wrong usage, 3 cannot reach the cluster."
RULES = (*offsets.RULES, *members.RULES, *stories.RULES)
SHARE_RULES = (*rules.RULES, members.missing_topics)


def findings_of(cases: Iterable[Case], least: Severity = Severity.INFO) -> list[Finding]:
    """What is wrong, the worst first; nothing that is less severe than `least`."""
    wanted = ORDER[: ORDER.index(least) + 1]
    return worst_first(
        finding
        for case in cases
        for rule in (SHARE_RULES if case.after.group.type == SHARE else RULES)
        for finding in rule(case)
        if finding.severity in wanted
    )


def doctor(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP|PATTERN", autocompletion=complete_groups)] = None,
    severity: Annotated[
        Severity,
        typer.Option(
            metavar="info|warning|critical", help="The least severe findings that are shown.", **choice([*Severity])
        ),
    ] = Severity.WARNING,
    look_for: Annotated[
        str,
        typer.Option(
            "--for", metavar="DURATION", help="How long to look; 30s tells a consumer that hangs from a slow one."
        ),
    ] = "2s",
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Find what is wrong with groups, and say what to do.

    All groups, or those of a PATTERN such as 'billing-*'.
    """
    seconds = milliseconds("--for", look_for) / 1000
    with connected(where) as cluster:
        listed = selected(cluster, names or (), shares=True)
        if missing := absent(cluster, names or (), listed):
            fail("; ".join(missing))
        collected = collect(cluster, names or (), listed, seconds)
    found = findings_of(collected.cases, severity)
    if output == Format.TABLE:
        show(lines_of(found, collected))
    else:
        print_document(document_of(found, collected), output)
    if found:
        raise typer.Exit(FAILED)


def lines_of(found: Iterable[Finding], collected: Collected) -> list[Line]:
    findings = list(found)
    lines = []
    for one in findings:
        lines.append(Line(f"{one.severity.upper()} {one.group}: {one.text}", bold=True))
        lines.append(Line(one.advice + (":" if one.command else ""), 4))
        if one.command:
            lines.append(Line(one.command, 6, whole=True))
    counts = Counter(one.severity for one in findings)
    what = ", ".join(f"{counts[severity]} {severity}" for severity in ORDER if counts[severity])
    summary = f"{plural(len(findings), 'finding')} ({what})" if findings else "nothing found"
    looked = f"in {plural(len(collected.cases), 'group')}, within {collected.seconds:.1f} s"
    lines.append(Line(f"{summary} {looked}"))
    return lines + [Line(f"not seen: {text}") for text in collected.not_seen]


def document_of(found: Iterable[Finding], collected: Collected) -> dict[str, Any]:
    findings = list(found)
    counts = Counter(one.severity for one in findings)
    return {
        "findings": [asdict(one) | {"severity": one.severity.value} for one in findings],
        "counts": {severity.value: counts[severity] for severity in ORDER},
        "groups": len(collected.cases),
        "seconds": round(collected.seconds, 3),
        "not_seen": list(collected.not_seen),
    }
