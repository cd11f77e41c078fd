"""`kohort groups watch`: lag, rates, stuck partitions and rebalances of groups, live.

On a terminal it is a picture that is drawn anew, and the last picture stays. Into a pipe or file each survey is plain
lines; `-o json` prints an object a line.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

import typer

from kohort.cli.connect import DEFAULT_CLUSTER, ClusterOptions, complete_groups, connected, fail
from kohort.cli.groups.lookup import absent, selected
from kohort.cli.groups.watch.changes import Change, Changes
from kohort.cli.groups.watch.sampling import Sampler
from kohort.cli.groups.watch.screen import HEADING, View, clock, figures_document, pictured
from kohort.cli.groups.watch.trends import GroupRow, PartitionRow, Stuck, Trends
from kohort.cli.interrupt import interrupts
from kohort.cli.option_objects import choice, milliseconds
from kohort.cli.output import Format, terminal_width
from kohort.client.admin.survey import Survey
from kohort.client.errors import KafkaError

STORIES = 3
"""The newest stories of a group that each survey asks for; more rebalances between two surveys are not told."""
PATIENCE_MS = 5_000
"""How long a call tries to reach the cluster before the watch says that it cannot."""
LEAST_INTERVAL_MS = 100
KEPT_CHANGES = 100


def watch(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP|PATTERN", autocompletion=complete_groups)] = None,
    interval: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two surveys, such as 500ms, 2s or 1m.")
    ] = "2s",
    once: Annotated[
        bool,
        typer.Option("--once", help="Print one table after an interval, since rates need two surveys, and exit."),
    ] = False,
    output: Annotated[
        Format,
        typer.Option(
            "--output",
            "-o",
            metavar="table|json",
            help="A picture or plain lines for people, one JSON object a survey and line for programs.",
            **choice([Format.TABLE, Format.JSON]),
        ),
    ] = Format.TABLE,
    where: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Watch lag, rates, stuck partitions and rebalances, live.

    All groups, or those of a PATTERN such as 'billing-*'; of one group its partitions. Ctrl-C ends it.
    """
    seconds = milliseconds("--interval", interval) / 1000
    if seconds * 1000 < LEAST_INTERVAL_MS:
        raise typer.BadParameter(f"{interval!r} is shorter than {LEAST_INTERVAL_MS}ms", param_hint=["--interval"])
    with connected(where, PATIENCE_MS) as cluster:
        chosen = tuple(names or ())
        if missing := absent(cluster, chosen, selected(cluster, chosen, shares=True)):
            fail("; ".join(missing))
        sampler = Sampler(cluster, chosen, STORIES)
        watched = Watched(seconds)
        watched.add(sampler.take())
        if once:
            time.sleep(seconds)
            watched.add(sampler.take())
            display: _Display = _Lines(watched) if output == Format.TABLE else _Json(watched)
            display.show()
            return
        with interrupts.careful(), _displaying(watched, output) as display:
            display.show()
            for result in sampler.every(seconds):
                if isinstance(result, KafkaError):
                    if not result.retriable:
                        raise result
                    watched.fail(result)
                else:
                    watched.add(result)
                display.show()


class Watched:
    """What is known now: the rows of the newest survey, the changes so far, and why there is no newer survey."""

    def __init__(self, seconds: float) -> None:
        self._trends, self._changes = Trends(), Changes()
        self._seconds = seconds
        self._heard_s = time.monotonic()
        self._why = ""
        self.at_ms = 0
        self.rows: list[GroupRow] = []
        self.changes: deque[Change] = deque(maxlen=KEPT_CHANGES)
        self.news: list[Change] = []
        """The changes of the newest survey."""
        self.has_journal = False

    def add(self, survey: Survey) -> None:
        self.rows = self._trends.rows(survey)
        self.news = self._changes.between(list(survey.groups.values()), survey.at_ms)
        for change in self.news:
            if change.key is not None:  # a story that was running has ended
                for old in [one for one in self.changes if (one.group, one.key) == (change.group, change.key)]:
                    self.changes.remove(old)
            self.changes.append(change)
        self.at_ms, self._heard_s, self._why = survey.at_ms, time.monotonic(), ""
        self.has_journal = survey.has_journal

    def fail(self, error: KafkaError) -> None:
        self._why, self.news = error.message, []

    @property
    def trouble(self) -> str:
        """Why the figures are old; empty if they are not."""
        age = time.monotonic() - self._heard_s
        if not self._why and age < 2 * self._seconds + 1:
            return ""
        why = self._why or "the cluster has not answered yet"
        return f"no answer for {age:.0f} s, the figures are of {clock(self.at_ms)}: {why}"

    def view(self, *, news_only: bool = False) -> View:
        return View(self.at_ms, self.rows, self.news if news_only else tuple(self.changes), self.trouble)


# -- forms of output


class _Display(Protocol):
    def show(self) -> None: ...


@contextmanager
def _displaying(watched: Watched, output: Format) -> Iterator[_Display]:
    if output == Format.JSON:
        yield _Json(watched)
    elif terminal_width() is None:
        yield _Lines(watched)
    else:
        from kohort.cli.groups.watch.picture import drawing  # rich takes 50 ms, and only this needs it

        with drawing(watched.view) as live:
            yield live


class _Lines:
    """Plain lines, a table a survey."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._printed = False

    def show(self) -> None:
        width = terminal_width()
        if self._printed:
            typer.echo()
        self._printed = True
        for line in pictured(self._watched.view(news_only=True), width):
            typer.secho(line.text, bold=width is not None and line.style == HEADING)
        sys.stdout.flush()


class _Json:
    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def show(self) -> None:
        typer.echo(json.dumps(document_of(self._watched), ensure_ascii=False))
        sys.stdout.flush()


def document_of(watched: Watched) -> dict[str, Any]:
    return {
        "at_ms": watched.at_ms,
        "error": watched.trouble or None,
        "has_journal": watched.has_journal,
        "groups": [_group_document(row) for row in watched.rows],
        "changes": [
            {"at_ms": one.at_ms, "group": one.group, "text": one.text, "story": one.key[1] if one.key else None}
            for one in watched.news
        ],
    }


def _group_document(row: GroupRow) -> dict[str, Any]:
    document = {
        "group": row.group,
        "state": row.state or None,
        "type": row.type or None,
        "assignor": row.assignor or None,
        "members": row.members,
        "partitions": row.partitions,
        "partitions_without_offset": row.without_offset,
        **figures_document(row.figures),
        "stuck": [_stuck_document(one) for one in row.stuck],
        "error": row.error or None,
    }
    if row.parts:
        document["offsets"] = [_partition_document(part) for part in row.parts]
    return document


def _stuck_document(stuck: Stuck) -> dict[str, Any]:
    return {
        "owner": stuck.owner or None,
        "last_owner": stuck.last or None,
        "partitions": [{"topic": topic, "partition": index} for topic, index in stuck.places],
        "for_s": round(stuck.for_s, 1),
        "lag": stuck.lag,
    }


def _partition_document(part: PartitionRow) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "current_offset": part.committed,
        "log_end_offset": part.end,
        **figures_document(part.figures),
        "unmoved_s": None if part.unmoved_s is None else round(part.unmoved_s, 1),
        "owner": part.owner or None,
    }
