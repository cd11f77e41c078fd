"""Options and errors of all commands that use a cluster: address, security, failures, completion.

A failure is one line on stderr that says what failed, where, and what to do about it, and an exit code (EXIT_CODES).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

import typer

from kohort.cli.option_objects import FAILED, Failed, complain, fail
from kohort.cli.output import plural
from kohort.client.cluster import Cluster
from kohort.client.errors import BadAnswer, ConnectionFailed, KafkaError, TimedOut, Unreachable
from kohort.client.metadata import Topic
from kohort.client.security.security import Security, security_properties
from kohort.client.wire.routing import parse_addresses
from kohort.properties import read_properties
from kohort.wire.errors import ErrorCode

__all__ = [
    "DEFAULT_CLUSTER",
    "EXIT_CODES",
    "FAILED",
    "UNREACHABLE",
    "ClusterOptions",
    "Failed",
    "complain",
    "complete_groups",
    "complete_topics",
    "complete_transactions",
    "connected",
    "fail",
    "fail_because",
    "missing",
    "partitions_of",
]

UNREACHABLE = 3

EXIT_CODES = "Exit codes: 0 done, 1 failed or not found, 2 wrong usage, 3 cannot reach the cluster."

BOOTSTRAP_VARIABLE = "KOHORT_BOOTSTRAP_SERVER"
COMMAND_CONFIG_VARIABLE = "KOHORT_COMMAND_CONFIG"
CONFIG_FLAG = "--command-config"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

API_TIMEOUT_MS = 20_000
BOOTSTRAP_TIMEOUT_MS = 3_000
COMPLETION_TIMEOUT_MS = 500


def _checked_address(value: str) -> str:
    try:
        parse_addresses(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return value


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster of a command."""

    bootstrap_server: Annotated[
        str,
        typer.Option(
            "--bootstrap-server",
            "-b",
            envvar=BOOTSTRAP_VARIABLE,
            metavar="HOST:PORT,...",
            help="Brokers to connect to first; one reachable broker is enough.",
            callback=_checked_address,
        ),
    ] = DEFAULT_BOOTSTRAP
    command_config: Annotated[
        Path | None,
        typer.Option(
            envvar=COMMAND_CONFIG_VARIABLE,
            metavar="FILE",
            dir_okay=False,
            help="Properties of the connection: security.protocol, ssl.…, sasl.… (docs/how-to/security.md).",
        ),
    ] = None

    def security_properties(self) -> dict[str, str]:
        """The properties about security in the file, as Kafka's tools take it; it ignores other properties.

        Raises BadParameter, which ends the command.
        """
        file = self.command_config
        try:
            properties = {} if file is None else security_properties(read_properties(file))
            Security.of(properties)
        except ValueError as error:
            raise typer.BadParameter(f"--command-config {file}: {error}") from None
        return properties


DEFAULT_CLUSTER = ClusterOptions()


class Flags(NamedTuple):
    """What the advice of an error calls the options of a cluster."""

    address: str = f"--bootstrap-server (or {BOOTSTRAP_VARIABLE})"
    config: str = f"--command-config (or {COMMAND_CONFIG_VARIABLE}) names"


FLAGS = Flags()


def _cluster(address: str, security: Security, timeout_ms: int, bootstrap_timeout_ms: int) -> Cluster:
    return Cluster(
        address,
        client_id="kohort-cli",
        request_timeout_ms=timeout_ms,
        api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=bootstrap_timeout_ms,
        connect_timeout_ms=bootstrap_timeout_ms,
        security=security,
    )


@contextmanager
def connected(where: ClusterOptions, timeout_ms: int = API_TIMEOUT_MS, flags: Flags = FLAGS) -> Iterator[Cluster]:
    """A client of the cluster; its failures end the command with their line and exit code. `timeout_ms` limits a call
    with its retries."""
    security = Security.of(where.security_properties())
    try:
        with _cluster(where.bootstrap_server, security, timeout_ms, BOOTSTRAP_TIMEOUT_MS) as cluster:
            yield cluster
    except KafkaError as error:
        fail_because(error, flags)
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would report that again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def fail_because(error: KafkaError, flags: Flags = FLAGS) -> NoReturn:
    """End the command, with advice about the cluster's address and settings."""
    fail(_advice(error, flags), UNREACHABLE if isinstance(error, ConnectionFailed | TimedOut) else FAILED)


def partitions_of(topic: Topic, wanted: Iterable[int], hint: str) -> list[int]:
    """The indexes of a topic's partitions. Fails, with a `hint`, if the topic or a wanted one is missing."""
    if topic.error:
        fail(missing(topic, f"; {hint}"))
    known = [partition.index for partition in topic.partitions]
    for index in wanted:
        if index not in known:
            fail(f"topic {topic.name} has no partition {index}; it has {plural(len(known), 'partition')}")
    return known


def missing(topic: Topic, hint: str = "") -> str:
    """Why a topic cannot be used; the `hint` is for one that does not exist."""
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {topic.name} does not exist{hint}"
    return f"topic {topic.name}: {topic.error.name}: {topic.error.message}"


def _advice(error: KafkaError, flags: Flags) -> str:
    if "security.protocol" in error.message:
        return f"{error.message}; {flags.config} the file for it"
    if isinstance(error, Unreachable) and "ApiVersions was not answered" in error.message:
        return (
            f"{error.message}; the address takes connections and does not answer: check {flags.address}, and whether "
            f"the server has room for one more connection (max.connections)"
        )
    if isinstance(error, Unreachable | BadAnswer):
        return f"{error.message}; check {flags.address} and that the server runs"
    if isinstance(error, ConnectionFailed):
        return (
            f"{error.message}; the cluster gives its clients this address: is that broker up and reachable from here?"
        )
    return error.message


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Topic names for the shell; none if the cluster does not answer quickly."""
    return _complete(context, incomplete, lambda cluster: list(cluster.topics(internal=incomplete.startswith("_"))))


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: [group.group_id for group in cluster.list_groups()])


Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups)]


def complete_transactions(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: [one.transactional_id for one in cluster.list_transactions()])


def _complete(context: typer.Context, incomplete: str, names: Callable[[Cluster], list[str]]) -> list[str]:
    address = context.params.get("bootstrap_server") or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    config = context.params.get("command_config") or os.environ.get(COMMAND_CONFIG_VARIABLE)
    try:
        security = Security() if config is None else Security.read(config)
        with _cluster(address, security, COMPLETION_TIMEOUT_MS, COMPLETION_TIMEOUT_MS) as cluster:
            return [name for name in names(cluster) if name.startswith(incomplete)]
    except (KafkaError, ValueError):
        return []
