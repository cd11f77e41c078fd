"""`kohort topics alter`: change the settings of a topic, and give it more partitions.

The settings come first, all or none of them. Only new partitions need a confirmation, because they cannot be removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kohort.cli.configs.words import change_of
from kohort.cli.confirmation import confirm
from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, complete_topics, connected, fail
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import near_word, pairs
from kohort.cli.output import Format, Output, plural, print_document
from kohort.cli.places import partitions_in
from kohort.client.admin.configs import ConfigEntry, ConfigSource, ResourceType
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.wire.errors import ErrorCode

UNCHANGED = "nothing was changed"
ON_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG


def alter(
    topic: Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_topics)],
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Add partitions until there are N.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change a setting; repeatable.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Set a setting back to its default; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --partitions: do not ask.")] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Change the settings of a topic, or add partitions.

    --partitions asks first, because partitions cannot be removed; without a terminal it needs --yes.
    """
    changes: dict[str, str | None] = dict(pairs("--config", config))
    for key in delete_config or ():
        if key in changes:
            raise typer.BadParameter(f"{key} is in --config, too", param_hint=["--delete-config"])
    changes |= dict.fromkeys(delete_config or ())
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to change: add --partitions, --config or --delete-config")
    with connected(where) as cluster:
        count = len(partitions_in(cluster, {topic: None}, UNCHANGED))
        if partitions is not None:
            if partitions <= count:
                fail(f"topic {topic} has {plural(count, 'partition')}, and can only get more; {UNCHANGED}")
            question = (
                f"Give topic {topic} {partitions} partitions instead of {count}? "
                "Keys then belong to other partitions, and partitions cannot be removed."
            )
            confirm(question, yes=yes, declined=UNCHANGED, err=output != Format.TABLE)
        old = _alter_configs(cluster, topic, changes)
        if output == Format.TABLE:
            lines = ((key, change_of(key, old.get(key), ON_TOPIC, value)) for key, value in changes.items())
            show(Line(f"{topic}: {key}: {line}") for key, line in lines)
        if partitions is not None:
            cluster.create_partitions(topic, partitions)
    if output != Format.TABLE:
        document: dict[str, Any] = {
            "topic": topic,
            "partitions": {"old": count, "new": partitions or count},
            "configs": {
                key: {"old": old[key].value if key in old else None, "new": value} for key, value in changes.items()
            },
        }
        print_document(document, output)
    elif partitions is not None:
        show([Line(f"{topic}: {plural(count, 'partition')} → {partitions}")])


def _alter_configs(cluster: Cluster, topic: str, changes: Mapping[str, str | None]) -> dict[str, ConfigEntry]:
    """Change settings. Returns those before, of defaults too."""
    if not changes:
        return {}
    old = {entry.name: entry for entry in cluster.describe_configs([topic])[topic]}
    try:
        cluster.alter_configs(ResourceType.TOPIC, topic, changes)
    except ServerError as error:
        if error.code != ErrorCode.INVALID_CONFIG:
            raise
        fail(refusal(error, changes, old))
    return old


def refusal(error: ServerError, changes: Mapping[str, str | None], old: Mapping[str, ConfigEntry]) -> str:
    """What a refused change of settings says. Names a near setting for an unknown one."""
    unknown = next((key for key in changes if key not in old), None)
    near = near_word(unknown, old) if unknown is not None else None
    said = error.message + (f"; did you mean {near}?" if near and "did you mean" not in error.message else "")
    return f"{said}{'' if said.endswith('?') else ';'} {UNCHANGED}"
