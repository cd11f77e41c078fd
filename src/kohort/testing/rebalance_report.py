"""The section of a failed test's report: the rebalances of its groups, as `kohort groups explain` tells them.

Only rebalances since the test began are told: a server may be shared by many tests. The section has at most MAX_LINES
lines. A server that has stopped, or cannot answer, adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kohort.cli.groups.explain import rebalance_of
from kohort.cli.groups.timeline import story_lines
from kohort.cli.groups.wording import Line, Names, people_of, wrapped
from kohort.client.admin.explanations import GroupExplanation
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.testing.server import KohortServer

MAX_LINES = 60
MAX_GROUPS = 5
MAX_STORIES = 5
WIDTH = 120
ANSWER_MS = 2_000
"""A failed test must not hang in its report."""


def section(server: KohortServer, since_ms: int) -> tuple[str, str] | None:
    """Title and text for the groups that rebalanced at `since_ms` (the server's clock) or later; None without any."""
    try:
        address = server.bootstrap_servers
        with Cluster(
            address,
            client_id="kohort-testing",
            request_timeout_ms=ANSWER_MS,
            api_timeout_ms=ANSWER_MS,
            bootstrap_timeout_ms=ANSWER_MS,
        ) as cluster:
            lines = list(_groups(cluster, since_ms))
    except (KafkaError, RuntimeError):  # the server ends meanwhile, or has failed
        return None
    if len(lines) > MAX_LINES:
        lines[MAX_LINES - 1 :] = [Line(f"and {len(lines) - MAX_LINES + 1} more lines")]
    text = "\n".join(text for _, text in wrapped(lines, WIDTH)).strip("\n")
    return (f"kohort: rebalances of the groups on {address}", text) if text else None


def _groups(cluster: Cluster, since_ms: int) -> Iterator[Line]:
    shown = 0
    for listed in cluster.list_groups():
        explanation = cluster.explain_group(listed.group_id, last=MAX_STORIES)
        lines = list(_group(explanation, since_ms))
        if not lines:
            continue
        shown += 1
        if shown > MAX_GROUPS:
            yield Line("and more groups")
            return
        yield Line("")
        yield from lines


def _group(explanation: GroupExplanation, since_ms: int) -> Iterator[Line]:
    stories = [
        one
        for one in explanation.stories
        if one["started_ms"] + (one.get("took_ms") or 0) >= since_ms and not one.get("changed")
    ]
    running = rebalance_of(explanation)
    if not stories and not running:
        return
    group = explanation.group
    yield Line(f"{group.group_id}: {group.state}, members: {len(group.members)}")
    names = Names(people_of(explanation.stories))
    for story in stories:
        if story.get("outcome"):
            yield from story_lines(story, names)
    yield from running
