"""`kohort health`: whether a server or a cluster serves its clients, as an exit code.

A kohort server with `http.listener` answers for itself (/livez, /readyz). Any other cluster, and a kohort server
without the listener, is asked by Kafka's protocol: each broker must answer, and each partition must have a leader and
all of its replicas in sync.
"""

from __future__ import annotations

import http.client
import re
from typing import Annotated

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, UNREACHABLE, ClusterOptions, connected, fail
from kohort.cli.groups.timeline import REBALANCING
from kohort.cli.option_objects import App
from kohort.cli.output import Column, Format, Output, name, plural, print_document, print_table_of
from kohort.client.cluster import Cluster
from kohort.client.errors import ConnectionFailed, TimedOut
from kohort.client.metadata import NO_LEADER, Partition
from kohort.client.wire.blocking_connection import reason
from kohort.client.wire.routing import parse_addresses

HTTP_VARIABLE = "KOHORT_HTTP_LISTENER"
"""The variable of the server's own setting: in a container both read it."""
TIMEOUT_S = 6.0
ANSWER_BYTES = 65_536
FAILED = 1
NAMED = 3
"""Partitions that a line names."""

Check = tuple[str, bool, str]
"""Name, whether it is good, and what was found."""

app = App(
    epilog="Exit codes: 0 healthy, 1 not healthy, 2 wrong usage, 3 cannot reach the server or cluster.",
)


def _address(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        if not re.fullmatch(r"(?:[^:\[\]]*|\[.*\]):\d+", value):
            raise ValueError
        [(host, port)] = parse_addresses(re.sub(r"^(?:\*|0\.0\.0\.0)?:", "127.0.0.1:", value))
    except ValueError:
        raise typer.BadParameter(f"{value!r} is not HOST:PORT") from None
    if host == "::":  # a listener there has no IPv4
        host = "::1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@app.command()
def health(
    http_listener: Annotated[
        str | None,
        typer.Option(
            "--http",
            envvar=HTTP_VARIABLE,
            metavar="HOST:PORT",
            help="The http.listener of a kohort server, which is asked instead of the brokers.",
            callback=_address,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="With --http: only whether the process works (/livez), not /readyz.")
    ] = False,
    output: Output = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Check a server or a cluster: exit code 0 if it is healthy, 1 if not, 3 if it cannot be reached."""
    if http_listener is not None:
        checks = _of_server(http_listener, "/livez" if live else "/readyz")
    elif live:
        raise typer.BadParameter("it needs --http HOST:PORT", param_hint=["--live"])
    else:
        with connected(where) as cluster:
            checks = _of_cluster(cluster)
    healthy = all(good for _, good, _ in checks)
    if output != Format.TABLE:
        listed = [{"name": name, "ok": good, "text": text} for name, good, text in checks]
        print_document({"healthy": healthy, "checks": listed}, output)
    else:
        columns = {
            name("CHECK"): lambda check: check[0],
            Column("STATE"): lambda check: "ok" if check[1] else "failed",
            Column("FOUND"): lambda check: check[2],
        }
        print_table_of(checks, columns)
    if not healthy:
        raise typer.Exit(FAILED)


# -- a kohort server, over HTTP


def _of_server(address: str, page: str) -> list[Check]:
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", page)
        answer = connection.getresponse()
        text = answer.read(ANSWER_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        why = reason(error)
        fail(f"cannot reach http://{address}{page}: {why}; check --http and that http.listener is set", UNREACHABLE)
    finally:
        connection.close()
    checks = [
        (match[2], match[1] == "ok", match[3])
        for line in text.splitlines()
        if (match := re.fullmatch(r"(ok|failed) ([a-z ]+): (.*)", line))
    ]
    if answer.status not in (200, 503) or (not checks and answer.status == 200):
        fail(f"http://{address}{page} answers with status {answer.status}; is it the http.listener of kohort?")
    if answer.status == 503 and all(good for _, good, _ in checks):
        checks.append(("answer", False, text.strip()[:200] or "status 503"))
    return checks


# -- any cluster, by its protocol


def _of_cluster(cluster: Cluster) -> list[Check]:
    nodes = cluster.nodes()
    silent = []
    for node in nodes.values():
        try:
            cluster.connection(node.node_id)
        except (ConnectionFailed, TimedOut):
            silent.append(f"{node.node_id} at {node.address}")
    checks: list[Check] = [
        (
            "brokers",
            not silent,
            f"{len(nodes) - len(silent)} of {len(nodes)} answer" + (f"; not {', '.join(silent)}" if silent else ""),
        )
    ]
    controller = cluster.controller_id()
    checks.append(("controller", controller in nodes, f"broker {controller}" if controller in nodes else "none"))
    partitions = [partition for topic in cluster.topics(internal=True).values() for partition in topic.partitions]
    leaderless = [partition for partition in partitions if partition.leader == NO_LEADER]
    checks.append(("leaders", not leaderless, _found(leaderless, len(partitions), "has a leader", "have a leader")))
    behind = [partition for partition in partitions if len(partition.isr) < len(partition.replicas)]
    checks.append(("replicas", not behind, _found(behind, len(partitions), "is in sync", "are in sync")))
    if not silent:
        busy = len(cluster.list_groups(states=REBALANCING))
        checks.append(("groups", True, f"the coordinators answer; {plural(busy, 'group')} rebalancing"))
    return checks


def _found(bad: list[Partition], count: int, one: str, several: str) -> str:
    good = count - len(bad)
    text = f"{good} of {plural(count, 'partition')} {one if good == 1 else several}"
    if not bad:
        return text
    names = ", ".join(f"{partition.topic}-{partition.index}" for partition in bad[:NAMED])
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return f"{text}; not {names}{more}"
