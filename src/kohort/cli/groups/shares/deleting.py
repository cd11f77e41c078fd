"""`kohort groups delete-offsets` of a share group: what it has of whole topics."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from kohort.cli.confirmation import confirm
from kohort.cli.connect import FAILED, complain, fail
from kohort.cli.groups.lookup import UNDELETED, why_not
from kohort.cli.groups.shares.describing import share_offsets_of
from kohort.cli.groups.shares.targets import chosen
from kohort.cli.groups.wording import Line, show
from kohort.cli.output import Format, plural, print_document
from kohort.cli.places import Scope
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError

AGAIN = "The group then begins there as its share.auto.offset.reset says."


def delete_share_offsets(cluster: Cluster, group: str, scope: Scope, *, yes: bool, output: Format) -> None:
    topics = topics_to_delete(cluster, group, scope)
    confirm(
        f"Forget what group {group} has of {plural(len(topics), 'topic')}: {', '.join(topics)}? {AGAIN}",
        yes=yes,
        declined=UNDELETED,
        err=output != Format.TABLE,
    )
    try:
        refused = cluster.share_groups.delete_offsets(group, topics)
    except ServerError as error:
        fail(f"{why_not(cluster, group, error)}; {UNDELETED}")
    done = [topic for topic in topics if topic not in refused]
    if output != Format.TABLE:
        rows = [
            {"topic": topic, "deleted": topic in done, "error": refused[topic].name if topic in refused else None}
            for topic in topics
        ]
        print_document({"group": group, "topics": rows}, output)
    elif done:
        show([Line(f"deleted the offsets of group {group} in {', '.join(done)}")])
    for topic, code in refused.items():
        complain(f"not deleted, because of {code.name}: {topic}")
    if refused:
        raise typer.Exit(FAILED)


def topics_to_delete(cluster: Cluster, group: str, scope: Scope) -> Sequence[str]:
    if parts := [name for name, indexes in scope.items() if indexes is not None]:
        fail(f"a share group has offsets of whole topics: write --topic {parts[0]}; {UNDELETED}")
    places = chosen(group, share_offsets_of(cluster, group).partitions, scope, UNDELETED)
    return list(dict.fromkeys(topic for topic, _ in places))
