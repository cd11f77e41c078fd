"""`kohort configs`: the settings of topics, brokers, groups and client metrics, over the public protocol."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kohort.cli.configs.change import set_configs, unset_configs
from kohort.cli.configs.resources import (
    RESOURCE_HELP,
    Resource,
    complete_resources,
    problem_of,
    refusal_of,
    resource_of,
)
from kohort.cli.configs.words import HIDDEN, source_of, value_of
from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, FAILED, ClusterOptions, complain, connected
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import App
from kohort.cli.output import Column, Format, Output, name, print_document, print_table
from kohort.client.admin.configs import ConfigEntry, ConfigSource
from kohort.client.errors import ServerError

app = App(epilog=EXIT_CODES, no_args_is_help=True)


@app.command("describe")
def describe(
    resources: Annotated[
        list[str], typer.Argument(metavar="RESOURCE", help=RESOURCE_HELP, autocompletion=complete_resources)
    ],
    everything: Annotated[bool, typer.Option("--all", help="Settings with their default value, too.")] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Show the settings that differ from their defaults.

    Also tells where each value comes from. Secrets are not shown.
    """
    wanted = list(dict.fromkeys(resource_of(text) for text in resources))
    found: dict[Resource, list[ConfigEntry]] = {}
    with connected(where) as cluster:
        for resource in wanted:
            if (problem := problem_of(cluster, resource)) is not None:
                complain(problem)
                continue
            try:
                entries = cluster.configs_of(*resource)
            except ServerError as error:
                complain(refusal_of(cluster, resource, error))
                continue
            found[resource] = [one for one in entries if everything or one.source != ConfigSource.DEFAULT_CONFIG]
    if output != Format.TABLE:
        print_document([_document(resource, entries) for resource, entries in found.items()], output)
    else:
        _print(found, everything)
    if len(found) < len(wanted):
        raise typer.Exit(FAILED)


def _document(resource: Resource, entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        "resource": resource.word,
        "type": resource.kind,
        "name": resource.name or None,
        "configs": [
            {
                "name": entry.name,
                "value": value_of(entry),
                "source": source_of(entry),
                "read_only": entry.read_only,
                "sensitive": entry.sensitive,
            }
            for entry in entries
        ],
    }


def _print(found: dict[Resource, list[ConfigEntry]], everything: bool) -> None:
    rows = [(resource, entry) for resource, entries in found.items() for entry in entries]
    has_resources, has_read_only = len(found) > 1, any(entry.read_only for _, entry in rows)
    columns = [name("SETTING"), name("VALUE"), Column("SOURCE")]
    if has_resources:
        columns.insert(0, name("RESOURCE"))
    if has_read_only:
        columns.append(Column("READ-ONLY"))
    if rows:
        print_table(
            columns,
            [
                (
                    *([resource.word] if has_resources else []),
                    entry.name,
                    HIDDEN if entry.sensitive else entry.value,
                    source_of(entry),
                    *(["yes" if entry.read_only else None] if has_read_only else []),
                )
                for resource, entry in rows
            ],
        )
    for resource, entries in found.items():
        if entries:
            continue
        if not resource.name:
            show([Line("no setting is set for all brokers")])
        elif everything:
            show([Line(f"{resource.word} has no settings")])
        else:
            show([Line(f"no setting of {resource.word} differs from its default; --all shows the defaults")])


app.command("set")(set_configs)
app.command("unset")(unset_configs)
