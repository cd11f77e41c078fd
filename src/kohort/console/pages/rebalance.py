"""One rebalance: who was awaited in words, members over time as a picture, and the same as a table."""

from __future__ import annotations

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kohort.cli.groups.timeline import headline, status_lines, story_lines
from kohort.cli.groups.wording import Document, Names, people_of
from kohort.client.cluster import Cluster
from kohort.console.live import Live
from kohort.console.reading.questions import GroupNow, group_now
from kohort.console.rebalances.drawing import svg
from kohort.console.rebalances.lanes import Bar, Chart, Lane, chart_of
from kohort.console.shared import Console, console_of, head_cells
from kohort.console.words import outcome_chip

ALL = 10_000
"""More stories than a journal keeps of a group."""


async def rebalance(request: Request) -> Response:
    console, group_id, number = asked(request)
    now, story = await story_of(console, group_id, number)
    chart = chart_of(story, now.status, now.now_ms)
    names = Names(people_of([story]))
    return console.page(
        request,
        "rebalance.html",
        title=f"Rebalance {number}",
        group_id=group_id,
        number=number,
        story=story,
        numbers=neighbours(now, number),
        headline=headline(story, names),
        outcome=outcome_chip(story.get("outcome", "")),
        running=chart.running,
        chart=rendered(console, chart, story, now),
        is_consumer=story.get("group_type") == "consumer",
        live="/live/rebalance" if chart.running else "",
    )


async def live(request: Request) -> Response:
    """For a rebalance that runs: the picture anew."""
    console, group_id, number = asked(request)

    async def read() -> Live:
        now, story = await story_of(console, group_id, number)
        chart = rendered(console, chart_of(story, now.status, now.now_ms), story, now)
        outcome = outcome_chip(story.get("outcome", ""))
        return Live({"": {**head_cells(console.refresher.look()), "outcome": outcome}}, {"chart": chart})

    return await console.streams.response(request, read)


def asked(request: Request) -> tuple[Console, str, int]:
    query = request.query_params
    text = query.get("number", "")
    if not text.isdecimal() or len(text) > 16:
        raise HTTPException(404, f"{text!r} is not the number of a rebalance")
    return console_of(request), query.get("group", ""), int(text)


async def story_of(console: Console, group_id: str, number: int) -> tuple[GroupNow, Document]:
    """The newest story with this number, and the group. Raises HTTPException."""

    def ask(cluster: Cluster) -> tuple[GroupNow, Document | None]:
        now = group_now(cluster, group_id, ALL)
        return now, next((story for story in reversed(now.stories) if story["number"] == number), None)

    now, story = await console.answers.get(("story", group_id, number), ask)
    if story is None:
        why = now.no_journal or f"the journal has no rebalance {number} of group {group_id}, or no longer"
        raise HTTPException(404, why)
    return now, story


def neighbours(now: GroupNow, number: int) -> tuple[int | None, int | None]:
    """The rebalances before and after this one."""
    numbers = [story["number"] for story in now.stories if story.get("outcome") != "noted"]
    return (
        max((other for other in numbers if other < number), default=None),
        min((other for other in numbers if other > number), default=None),
    )


def rendered(console: Console, chart: Chart, story: Document, now: GroupNow) -> Markup:
    status = now.status if chart.running else None
    names = Names([*people_of([story]), *((status or {}).get("members", ()))])
    lines = [line.text for line in story_lines(story, names)[1:] if line.depth == 4]
    if status is not None:
        lines = [line.text for line in status_lines(status, names)] + lines[1:]
    label = f"{len(chart.table)} members over time; the table below has the same in numbers"
    events = any(lane.marks for lane in chart.table)
    return console.render("chart.html", chart=chart, lines=lines, svg=svg(chart, label), spans=spans, events=events)


def spans(lane: Lane, kind: str) -> list[Bar]:
    return [bar for bar in lane.bars if bar.kind == kind]


ROUTES = {"/rebalance": rebalance, "/live/rebalance": live}
