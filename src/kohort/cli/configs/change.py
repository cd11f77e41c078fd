"""`kohort configs set` and `unset`: change settings of one resource, all of them or none.

The cluster checks the changes first. A change of a broker is then confirmed, because it touches every client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.configs.resources import (
    RESOURCE_HELP,
    Resource,
    complete_resources,
    problem_of,
    refusal_of,
    resource_of,
)
from kohort.cli.configs.words import change_of, is_secret, without_secrets
from kohort.cli.confirmation import confirm
from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, complain, connected, fail
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import near_word, pairs
from kohort.cli.output import Format, Output, plural, print_document
from kohort.client.admin.configs import ConfigEntry, ResourceType
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.properties import read_properties
from kohort.wire.errors import ErrorCode

UNCHANGED = "nothing was changed"
LISTENER_PREFIX = "listener.name."

One = Annotated[str, typer.Argument(metavar="RESOURCE", help=RESOURCE_HELP, autocompletion=complete_resources)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the cluster check the change, and do not change it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Of brokers: do not ask.")]


def set_configs(
    resource: One,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Settings and values.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="A .properties file of settings, for example secrets."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Set settings of a resource; others that it has stay.

    A change of brokers asks first; without a terminal it needs --yes.
    """
    changes = pairs("NAME=VALUE", settings)
    if len(changes) < len(settings or ()):
        raise typer.BadParameter("a setting is given twice")
    if file is not None:
        try:
            of_file = read_properties(file)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=["--file"]) from None
        if twice := sorted(of_file.keys() & changes.keys()):
            raise typer.BadParameter(f"{twice[0]} is in {file}, too")
        changes |= of_file
    _change(resource_of(resource), changes, dry_run, yes, output, where)


def unset_configs(
    resource: One,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Settings.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Set settings of a resource back to their defaults.

    A change of brokers asks first; without a terminal it needs --yes.
    """
    for name in names:
        if "=" in name:
            raise typer.BadParameter(f"{name.partition('=')[0]}=… is no name; `kohort configs set` takes values")
    _change(resource_of(resource), dict.fromkeys(names), dry_run, yes, output, where)


def _change(
    resource: Resource,
    changes: Mapping[str, str | None],
    dry_run: bool,
    yes: bool,
    output: Format,
    where: ClusterOptions,
) -> None:
    if not changes:
        raise typer.BadParameter("nothing to change: add NAME=VALUE")
    with connected(where) as cluster:
        if (problem := problem_of(cluster, resource)) is not None:
            fail(f"{problem}; {UNCHANGED}")
        old = _alter(cluster, resource, changes, dry_run=dry_run, yes=yes, output=output)
    if output != Format.TABLE:
        document: dict[str, Any] = {
            "resource": resource.word,
            "dry_run": dry_run,
            "configs": {
                key: {
                    "old": old[key].value if key in old and not old[key].sensitive else None,
                    "new": None if is_secret(key, old.get(key)) else value,
                }
                for key, value in changes.items()
            },
        }
        print_document(document, output)
    elif dry_run:
        show([Line(f"{UNCHANGED}: this is a dry run, and the cluster accepts the change")])


def _alter(
    cluster: Cluster, resource: Resource, changes: Mapping[str, str | None], *, dry_run: bool, yes: bool, output: Format
) -> dict[str, ConfigEntry]:
    """Returns the settings before, of defaults too."""
    old: dict[str, ConfigEntry] = {}
    try:
        old = {entry.name: entry for entry in cluster.configs_of(*resource)}
        if dry_run or resource.is_of_brokers:
            cluster.alter_configs(*resource, changes, validate_only=True)
        lines = [
            Line(f"{resource.word}: {key}: {change_of(key, old.get(key), resource.own, value)}")
            for key, value in changes.items()
        ]
        if output == Format.TABLE and (dry_run or resource.is_of_brokers):
            show(lines)
        if resource.is_of_brokers and (hint := _hint(cluster, resource, changes, old)):
            # Apache Kafka accepts any name as a setting of a broker.
            complain(f"{resource.word} has no setting {hint.strip()}")
        if not dry_run:
            if resource.is_of_brokers:
                whose = "all brokers" if not resource.name else f"broker {resource.name}"
                question = f"Change {plural(len(changes), 'setting')} of {whose}?"
                confirm(question, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
            cluster.alter_configs(*resource, changes)
            if output == Format.TABLE:
                show([Line(f"changed {resource.word}")] if resource.is_of_brokers else lines)
    except ServerError as error:
        said = without_secrets(refusal_of(cluster, resource, error), changes, old)
        hint = ""
        if error.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST) and "did you mean" not in said:
            hint = _hint(cluster, resource, changes, old)
        fail(f"{said}{'' if said.endswith('?') else ';'} {hint}{UNCHANGED}")
    return old


def _hint(cluster: Cluster, resource: Resource, names: Iterable[str], old: Mapping[str, ConfigEntry]) -> str:
    """The setting that was probably meant by the first one that the resource does not list, as a question."""
    known = set(old)
    if resource.type == ResourceType.BROKER and not resource.name:
        # The defaults of all brokers list what is set.
        known |= {entry.name for entry in cluster.configs_of(ResourceType.BROKER, str(min(cluster.nodes())))}
    for name in names:
        if name not in known and not name.lower().startswith(LISTENER_PREFIX) and (near := near_word(name, known)):
            return f"{name}: did you mean {near}? "
    return ""
