"""The command that undoes a change of committed offsets, where the coordinator keeps them in its journal."""

from __future__ import annotations

import shlex

from kohort.cli.groups.wording import utc
from kohort.client.admin.groups import SHARE
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError


def restore_command(cluster: Cluster, group_id: str) -> str | None:
    """Undoes what is changed from now on, by the server's clock. None if the coordinator does not keep offsets, or does
    not say so."""
    moment = restore_moment(cluster, group_id)
    return None if moment is None else f"kohort groups restore {shlex.quote(group_id)} --before {moment}"


def restore_moment(cluster: Cluster, group_id: str) -> str | None:
    """Now, by the server's clock; None if the coordinator does not keep offsets, or does not say so, and for a share
    group, which has no committed offsets."""
    try:
        explanation = cluster.explain_group(group_id, last=0)
    except KafkaError:
        return None
    keeps = explanation.keeps_offsets and explanation.group.type != SHARE
    return utc(explanation.now_ms) if keeps else None
