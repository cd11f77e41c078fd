"""`kohort cluster describe`: the brokers, and how many topics, partitions and groups there are; `kohort cluster nodes`:
the nodes on a database, and what each owns; `drain` and `move`: which node serves what, of nodes that serve at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, EXIT_CODES, FAILED, UNREACHABLE, ClusterOptions, connected, fail
from kohort.cli.groups.wording import Line, show
from kohort.cli.option_objects import App
from kohort.cli.output import Format, Output, name, number, plural, print_document, print_table
from kohort.client.metadata import NO_LEADER, NO_NODE, Node, Topic

LARGEST_ID = 2**31 - 1


def _checked_url(url: str) -> str:
    """As the setting `storage` is checked; values that name no database would mean one on this machine."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise typer.BadParameter("it takes postgresql://USER@HOST/DATABASE")
    return url


Storage = Annotated[
    str,
    typer.Option(
        envvar="KOHORT_STORAGE", metavar="postgresql://...", help="The database of the nodes.", callback=_checked_url
    ),
]
app = App(epilog=EXIT_CODES, no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Describe the cluster: its brokers, topics and groups."""


@app.command("describe")
def describe(output: Output = Format.TABLE, where: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """List brokers; count topics, partitions and groups."""
    with connected(where) as client:
        nodes = client.nodes()
        topics = list(client.topics(internal=True).values())
        groups = Counter(group.state or "unknown" for group in client.list_groups())
        document = document_of(client.cluster_id(), client.controller_id(), nodes.values(), topics, groups)
    if output != Format.TABLE:
        print_document(document, output)
        return
    columns = [number("ID"), name("ADDRESS"), name("RACK"), number("LEADS")]
    print_table(
        columns, [(node.node_id, node.address, node.rack, _led(topics, node.node_id)) for node in nodes.values()]
    )
    show(map(Line, lines_of(document)))


@app.command("nodes")
def nodes(
    storage: Storage,
    output: Output = Format.TABLE,
) -> None:
    """List the nodes on a database, also while none serves.

    With their leases, and the slots that each owns (experimental).
    """
    found = _on_database(lambda report: report.nodes_of(storage))
    documents = [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "lease_s": round(max(node.lease_s, 0.0), 1),
            "slots": node.slots,
            "incarnation": node.incarnation,
            "turn": node.turn,
            "drained": node.is_drained,
            "controller": node.is_controller,
        }
        for node in found
    ]
    if output != Format.TABLE:
        print_document({"nodes": documents}, output)
        return
    columns = [
        *(number("ID"), name("ADDRESS"), name("RACK"), number("LEASE"), number("SLOTS"), number("TURN"), name("ROLE")),
    ]
    print_table(
        columns,
        [
            (node.id, f"{node.host}:{node.port}", node.rack, _lease(node.lease_s), node.slots, node.turn, _role(node))
            for node in found
        ],
    )


@app.command("drain")
def drain(
    node: Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="The broker.id of the node.")],
    storage: Storage,
    undo: Annotated[bool, typer.Option("--undo", help="Let the node take slots again.")] = False,
) -> None:
    """Let a node give its slots to the others, for a planned stop.

    They go one by one. The node goes on to run, and gets no slots until --undo, also after a restart. With
    cluster.serving=all, experimental.
    """
    _on_database(lambda report: report.drain(storage, node, back=undo))
    typer.echo(
        f"node {node} takes slots again"
        if undo
        else f"node {node} gives its slots to the others: kohort cluster nodes shows how many it still has"
    )


@app.command("move")
def move(
    slot: Annotated[int, typer.Argument(min=0, max=127, help="The slot's number, 0 to 127; 0 is the controller's.")],
    node: Annotated[int, typer.Option("--to", min=0, max=LARGEST_ID, help="The broker.id of the node that takes it.")],
    storage: Storage,
) -> None:
    """Let one slot go to another node.

    With cluster.serving=all, experimental.
    """
    _on_database(lambda report: report.move(storage, slot, node))
    typer.echo(f"slot {slot} goes to node {node}")


def _on_database(work: Callable[[Any], Any]) -> Any:
    """`work` gets the module that reads and changes the tables of nodes."""
    try:
        from kohort.storage.postgres import report
    except ImportError as error:
        fail(f"storage needs {error.name}: pip install 'kohort[postgres]'")
    try:
        return work(report)
    except report.StorageError as error:
        fail(str(error), UNREACHABLE if isinstance(error, report.Unavailable) else FAILED)


def _role(node: Any) -> str:
    """Of nodes that serve at once."""
    roles = {"controller": node.is_controller, "drained": node.is_drained}
    return ", ".join(name for name, holds in roles.items() if holds) or "-"


def _lease(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds > 0 else "none"


def _led(topics: Iterable[Topic], node_id: int) -> int:
    return sum(part.leader == node_id for topic in topics for part in topic.partitions)


def document_of(
    cluster_id: str | None, controller_id: int, nodes: Iterable[Node], topics: list[Topic], groups: Mapping[str, int]
) -> dict[str, Any]:
    parts = [part for topic in topics for part in topic.partitions]
    return {
        "cluster_id": cluster_id,
        "controller": controller_id if controller_id != NO_NODE else None,
        "nodes": [
            {
                "id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "leads": _led(topics, node.node_id),
            }
            for node in nodes
        ],
        "topics": sum(not topic.internal for topic in topics),
        "internal_topics": sum(topic.internal for topic in topics),
        "partitions": len(parts),
        "partitions_without_leader": sum(part.leader == NO_LEADER for part in parts),
        "under_replicated_partitions": sum(len(part.isr) < len(part.replicas) for part in parts),
        "groups": dict(sorted(groups.items())),
    }


def lines_of(document: dict[str, Any]) -> list[str]:
    controller = "unknown" if document["controller"] is None else document["controller"]
    states = ", ".join(f"{count} {state}" for state, count in document["groups"].items())
    groups = plural(sum(document["groups"].values()), "group")
    topics = f"{plural(document['topics'], 'topic')} and {document['internal_topics']} internal"
    lines = [
        f"cluster {document['cluster_id'] or 'without an id'}: {plural(len(document['nodes']), 'broker')}, "
        f"controller {controller}",
        f"{topics}, with {plural(document['partitions'], 'partition')}",
        f"{groups}: {states}" if states else groups,
    ]
    for key, words in (
        ("partitions_without_leader", "without a leader"),
        ("under_replicated_partitions", "with fewer replicas in sync than they have"),
    ):
        if document[key]:
            lines.append(f"{plural(document[key], 'partition')} {words}")
    return lines
