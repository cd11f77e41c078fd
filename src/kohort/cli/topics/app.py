"""`kohort topics`: create, list, describe, change and delete topics, over the public protocol.

Where an open transaction holds back readers of committed records, `describe` names it (`kohort.cli.stable_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from kohort.cli.confirmation import Yes, confirm
from kohort.cli.connect import (
    DEFAULT_CLUSTER,
    EXIT_CODES,
    FAILED,
    ClusterOptions,
    complain,
    complete_topics,
    connected,
    missing,
)
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import App, pairs
from kohort.cli.output import (
    Cell,
    Column,
    Format,
    Output,
    name,
    number,
    plural,
    print_document,
    print_table,
    print_table_of,
)
from kohort.cli.places import near_topic
from kohort.cli.stable_offsets import StableEnd, document_of, stable_ends
from kohort.cli.topics.alter import alter
from kohort.cli.topics.delete_records import delete_records
from kohort.client.admin.configs import ConfigEntry
from kohort.client.cluster import BROKER_DEFAULT, Cluster
from kohort.client.errors import ServerError, UnsupportedVersion
from kohort.client.metadata import NO_LEADER, Partition, Topic, TopicPartition
from kohort.wire.errors import ErrorCode

app = App(epilog=EXIT_CODES, no_args_is_help=True)
ExistingTopics = Annotated[list[str], typer.Argument(metavar="NAME", autocompletion=complete_topics)]


@app.command("create")
def create(
    topic: Annotated[str, typer.Argument(metavar="NAME")],
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of partitions [default: the broker's].")] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Number of copies [default: the broker's].")
    ] = None,
    config: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting; repeatable.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")] = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Create a topic."""
    configs = pairs("--config", config)
    with connected(where) as cluster:
        try:
            cluster.create_topic(
                topic,
                partitions if partitions is not None else BROKER_DEFAULT,
                replication_factor if replication_factor is not None else BROKER_DEFAULT,
                configs,
            )
        except ServerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            typer.echo(f"topic {topic} exists already")
            return
    typer.echo(f"created topic {topic}")


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """List topics."""
    with connected(where) as cluster:
        topics = list(cluster.topics(internal=internal).values())
    rows = [(topic.name, len(topic.partitions), topic.replication_factor, topic.internal) for topic in topics]
    if output != Format.TABLE:
        names = ("topic", "partitions", "replication_factor", "internal")
        print_document([dict(zip(names, row, strict=True)) for row in rows], output)
        return
    print_table([name("TOPIC"), number("PARTITIONS"), number("REPLICATION-FACTOR")], [row[:3] for row in rows])


@app.command("describe")
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="All topics by default.", autocompletion=complete_topics),
    ] = None,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Describe topics: their partitions, offsets and settings.

    Leaders and replicas, too; of the settings those that differ from their defaults.
    """
    with connected(where) as cluster:
        asked = cluster.topics(names or None)
        topics = [topic for topic in asked.values() if not topic.error]
        unknown = [missing(topic, _hint(cluster, topic.name)) for topic in asked.values() if topic.error]
        described, stable = _described(cluster, topics)
    if output != Format.TABLE:
        print_document(described, output)
    else:
        for index, description in enumerate(described):
            if index:
                typer.echo("")
            _print_topic(description, [end for end in stable.values() if end.topic == description["topic"]])
    for line in unknown:
        complain(line)
    if len(topics) < len(asked):
        raise typer.Exit(FAILED)


@app.command("delete")
def delete(
    names: ExistingTopics,
    yes: Yes = False,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete topics and their records. Asks first; without a terminal it needs --yes."""
    what = f"topic {names[0]}" if len(names) == 1 else f"{len(names)} topics"
    confirm(f"Delete {what} and all records?", yes=yes, declined="nothing was deleted")
    failed = False
    with connected(where) as cluster:
        for topic in dict.fromkeys(names):
            try:
                cluster.delete_topic(topic)
            except ServerError as error:
                unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                complain(f"topic {topic} does not exist{_hint(cluster, topic)}" if unknown else error.message)
                failed = True
            else:
                typer.echo(f"deleted topic {topic}")
    if failed:
        raise typer.Exit(FAILED)


def _hint(cluster: Cluster, topic: str) -> str:
    return f"; {near}" if (near := near_topic(cluster, topic)) else ""


def _described(cluster: Cluster, topics: list[Topic]) -> tuple[list[dict[str, Any]], dict[TopicPartition, StableEnd]]:
    led = [(part.topic, part.index) for topic in topics for part in topic.partitions if part.leader != NO_LEADER]
    earliest = cluster.offsets(led, "earliest")
    latest = cluster.offsets(led, "latest")
    stable = stable_ends(cluster, latest)
    configs = _configs(cluster, topics)
    described = [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id.hex() if topic.topic_id is not None else None,
            "internal": topic.internal,
            "replication_factor": topic.replication_factor,
            "configs": {entry.name: entry.value for entry in configs.get(topic.name, ()) if entry.set_on_topic},
            "partitions": [_partition(partition, earliest, latest, stable) for partition in topic.partitions],
        }
        for topic in topics
    ]
    return described, stable


def _configs(cluster: Cluster, topics: list[Topic]) -> dict[str, tuple[ConfigEntry, ...]]:
    """The settings, where the broker serves the request and the user may send it."""
    try:
        return cluster.describe_configs(topic.name for topic in topics)
    except (UnsupportedVersion, ServerError) as error:
        if isinstance(error, ServerError) and error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        complain(f"settings are not shown: {error.message}")
        return {}


def _partition(
    partition: Partition,
    earliest: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    stable: dict[TopicPartition, StableEnd],
) -> dict[str, Any]:
    key = (partition.topic, partition.index)
    return {
        "partition": partition.index,
        "leader": partition.leader if partition.leader != NO_LEADER else None,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "earliest_offset": earliest.get(key),
        "latest_offset": latest.get(key),
        **document_of(stable.get(key), latest.get(key)),
    }


def _print_topic(topic: dict[str, Any], stable: list[StableEnd]) -> None:
    partitions = topic["partitions"]
    title = (
        f"{topic['topic']}: {plural(len(partitions), 'partition')}, replication factor {topic['replication_factor']}"
    )
    typer.secho(f"{title}, internal" if topic["internal"] else title, bold=True)
    for key, value in topic["configs"].items():
        typer.echo(f"  {key}={'(hidden)' if value is None else value}")
    columns: dict[Column, Callable[[dict[str, Any]], Cell]] = {
        number("PARTITION"): lambda row: row["partition"],
        number("LEADER"): lambda row: row["leader"],
        name("REPLICAS"): lambda row: ",".join(map(str, row["replicas"])),
        name("ISR"): lambda row: ",".join(map(str, row["isr"])),
        number("EARLIEST-OFFSET"): lambda row: row["earliest_offset"],
        number("LATEST-OFFSET"): lambda row: row["latest_offset"],
    }
    if stable:
        columns[number("LAST-STABLE-OFFSET")] = lambda row: row["last_stable_offset"]
    print_table_of(partitions, columns)
    show(Line(end.line) for end in stable)


app.command("alter")(alter)
app.command("delete-records")(delete_records)
