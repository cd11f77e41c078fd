"""A group's tab What if: its own changes with other protocols and with static members.

The simulator plays them in another process. The page comes at once, and a stream brings the answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from markupsafe import Markup

from kohort.cli.groups.wording import Document
from kohort.console.reading.questions import GroupNow
from kohort.console.shared import Console
from kohort.console.what_if.answers import Answer
from kohort.console.what_if.history import History, NothingToPlay, history_of
from kohort.console.what_if.words import MODELLED, NOT_MODELLED, best_line, name_of, played_line, static_line

SOON_S = 0.05
"""An answer that comes so soon is in the page."""
REGION = "what-if"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    is_present: bool
    problem: str
    rebalances: int
    each_ms: int
    """How long a partition stands still, in the mean."""
    longest_ms: int
    moves: int
    share: float
    """Of the longest bar, in percent."""


async def values(console: Console, now: GroupNow, stories: tuple[Document, ...]) -> dict[str, Any]:
    """What the template needs besides the facts: a region, and why there is nothing to play."""
    if not stories:
        return {"nothing": now.no_journal or "The journal has no rebalance of this group yet.", "region": ""}
    key = key_of_state(now.group.group_id, stories)
    history = console.what_ifs.history(key)
    if history is None:
        try:
            history = await to_thread.run_sync(history_of, stories, now.group.members)
        except NothingToPlay as error:
            return {"nothing": str(error), "region": ""}
    task = console.what_ifs.ask(key, history)
    await asyncio.wait((task,), timeout=SOON_S)
    answer = task.result() if task.done() else None
    region = rendered(console, now.group.group_id, history, answer)
    return {"nothing": "", "region": region, "regions": {REGION: region}}


def key_of_state(group_id: str, stories: tuple[Document, ...]) -> tuple[str, int, str]:
    """It changes with each rebalance, and when it ends."""
    return (group_id, stories[-1]["number"], stories[-1].get("outcome", ""))


def rendered(console: Console, group_id: str, history: History, answer: Answer | None) -> Markup:
    return console.render(
        "what_if.html",
        group_id=group_id,
        history=history,
        answer=answer,
        rows=rows_of(history, answer) if answer else [],
        static_line=static_line(history),
        best_line=best_line(history, answer) if answer else "",
        played_line=played_line(history),
        modelled=MODELLED,
        not_modelled=NOT_MODELLED,
    )


def rows_of(history: History, answer: Answer) -> list[Row]:
    most = max((way.paused_ms for way in answer.ways), default=0) or 1
    return [
        Row(
            name_of(way),
            number == 0,
            way.problem or ("" if way.settled else "did not become stable"),
            way.rebalances,
            round(way.paused_ms / history.partitions),
            way.longest_ms,
            way.moves,
            round(100 * way.paused_ms / most, 1),
        )
        for number, way in enumerate(answer.ways)
    ]
