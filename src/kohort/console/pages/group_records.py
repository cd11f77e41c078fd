"""A share group's tab Records: what is in flight and by whom, what was archived and why, and how deliveries ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams

from kohort.cli.groups.shares.describing import archived_rows, counted, holder_rows, notes
from kohort.cli.groups.wording import Names, as_document
from kohort.cli.output import Cell
from kohort.client.admin.groups import GroupDescription
from kohort.client.admin.share_groups import ShareOffsets
from kohort.client.cluster import Cluster
from kohort.console.paging import page_of, wanted_page
from kohort.console.shared import Console
from kohort.console.words import count

RANGES = 50
"""Ranges of each kind that are asked for, of each partition."""
SHOWN = 20
"""Archived ranges."""


@dataclass(frozen=True, slots=True)
class Records:
    offsets: ShareOffsets
    holders: Sequence[tuple[Cell, ...]]
    """As the cells of `HOLDER_COLUMNS`."""
    archived: Sequence[tuple[Cell, ...]]
    """As the cells of `ARCHIVED_COLUMNS` and `DEAD_LETTER_COLUMN`, the newest first."""


def records_of(cluster: Cluster, group: GroupDescription) -> Records:
    offsets = cluster.share_groups.offsets([group.group_id], ranges=RANGES)[group.group_id]
    by_id = {member.member_id: as_document(member) for member in group.members}
    names = Names(by_id.values())
    return Records(offsets, list(holder_rows(offsets, names, by_id)), archived_rows(offsets, names, by_id))


async def values(console: Console, group: GroupDescription, query: QueryParams) -> dict[str, Any]:
    found: Records = await console.answers.get(("records", group.group_id), partial(records_of, group=group))
    shown = console.render(
        "records.html",
        holders=page_of(found.holders, wanted_page(query)),
        archived=found.archived[:SHOWN],
        has_letters=any(row[-1] for row in found.archived),
        more_archived=max(len(found.archived) - SHOWN, 0),
        outcomes=[(what, count(number)) for what, number in counted(found.offsets).items()],
        notes=[note[:1].upper() + note[1:] for note in notes(found.offsets) if not note.startswith("records since")],
        group_id=group.group_id,
        query=query,
        tells=found.offsets.tells_records,
    )
    return {"regions": {"records": shown}}
