"""What a history could see, and the findings of kohort's journal beside those of the log."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from analysed_logs import analysed, at, kinds, rows_of
from offsets_log import MINUTE, START, Log

from kohort.spark.history.coverage import Coverage
from kohort.spark.history.journal import Journal
from kohort.spark.history.limits import Limits
from kohort.spark.history.report.journal_findings import of_stories, without_repeats

NO_JOURNAL = (0, None, "the cluster has none")


def covered(table: pa.Table, *, ends: int = 1) -> Coverage:
    return Coverage.of([table], START + 60 * MINUTE, NO_JOURNAL, 1, ends)


def test_a_whole_log_gives_an_all_clear() -> None:
    log = Log(30)
    log.healthy("g", log.topic("orders", 1, 50.0))
    tables, _ = analysed(log)
    [row] = tables["coverage"].to_pylist()
    assert (row["first"], row["missing"], row["records"]) == (0, 0, len(log.written))
    assert row["since"] == row["whole_since"]
    seen = covered(tables["coverage"])
    assert not seen.partial
    assert seen.lines[0].endswith(" UTC, none missing.")


def test_a_compacted_log_says_since_when_it_is_whole() -> None:
    """Compaction has left every tenth record of the first half."""
    log = Log(30)
    log.healthy("g", log.topic("orders", 1, 50.0))
    rows = rows_of(log)
    half = rows.num_rows // 2
    left = rows.take(pa.array([*range(3, half, 10), *range(half, rows.num_rows)]))
    tables, _ = analysed(log, rows=left)
    [row] = tables["coverage"].to_pylist()
    assert (row["first"], row["last"], row["missing"]) == (3, rows.num_rows - 1, rows.num_rows - left.num_rows)
    times = sorted(when for when, _ in log.written)
    assert at(row, "whole_since") in (times[half - 1], times[half])
    seen = covered(tables["coverage"])
    assert seen.partial
    assert f"{row['missing']:,} earlier records are not in the log any more" in seen.lines[1]


def test_unknown_lag_is_no_all_clear() -> None:
    log = Log(10)
    log.healthy("g", log.topic("orders", 1, 50.0))
    seen = covered(analysed(log, ends=False)[0]["coverage"], ends=0)
    assert seen.partial
    assert "Lag is not known for any partition: groups that fall behind there are not found." in seen.lines


def test_no_records_at_all() -> None:
    seen = covered(analysed(Log(1), ends=False)[0]["coverage"])
    assert seen.lines == ["The log has no records."]


# -- the journal


def story(number: int, minute: float, what: str, client: str, **more: Any) -> dict[str, Any]:
    cause = {"what": what, "client_id": client, "member_id": f"{client}-{number}", "host": "/10.0.0.7"}
    started = START + int(minute * MINUTE)
    cause |= more.pop("cause", {})
    return {"group": "g", "number": number, "started_ms": started, "outcome": "Stable", "cause": cause, **more}


def removals(client: str, count: int, every: float) -> list[dict[str, Any]]:
    stories = []
    for n in range(count):
        left = {"cause": "consumer poll timeout has expired."}
        stories.append(story(2 * n + 1, 10 + n * every, "member left", client, cause=left))
        stories.append(story(2 * n + 2, 10.5 + n * every, "member joined", client))
    return stories


def test_the_journal_says_that_a_client_exceeds_max_poll() -> None:
    [finding] = of_stories({"g": removals("slow", 5, 6)}, Limits())
    assert (finding.severity, finding.kind) == ("bad", "loop")
    assert finding.headline == (
        "slow on 10.0.0.7 dropped out of g 5 times in 24 min: it took longer than max.poll.interval.ms"
    )
    assert finding.details.startswith("Lower max.poll.records")
    assert of_stories({"g": removals("slow", 5, 60)}, Limits()) == [], "each removal is another day's"


def test_the_journal_tells_a_rolling_deployment() -> None:
    stories = []
    for n in range(6):
        stories.append(story(2 * n + 1, 10 + n, "member left", f"app-{n}"))
        stories.append(story(2 * n + 2, 10.5 + n, "member joined", f"app-{n}"))
    [finding] = of_stories({"g": stories}, Limits())
    assert (finding.severity, finding.kind) == ("warn", "rolling deployment")


def test_the_journal_knows_who_reset_a_group() -> None:
    changed = {"orders": [[0, 500, 0], [1, 300, 0]]}
    one = story(1, 5, "offsets changed", "kohort-cli", outcome="noted", changed=changed)
    gone = story(
        2, 9, "offsets deleted", "", outcome="noted", changed={"orders": [[0, 7, -1]]}, cause={"cause": "expired"}
    )
    gone["cause"] |= {"member_id": ""}
    reset, deleted = of_stories({"g": [one, gone]}, Limits())
    assert reset.headline == "g was reset to 0 from outside"
    assert reset.details.startswith("by kohort-cli on 10.0.0.7; 800 records to be read again on 2 partitions; ")
    assert (deleted.kind, deleted.headline) == ("offsets deleted", "g lost 1 committed offset")
    ahead = story(1, 5, "offsets changed", "kohort-cli", outcome="noted", changed={"orders": [[0, 0, 500]]})
    assert of_stories({"g": [ahead]}, Limits()) == []


def test_what_the_journal_explains_is_told_once() -> None:
    log = Log(60)
    topic = log.topic("orders", 6, 50.0)
    log.storm("g", topic, START + 10 * MINUTE, 20)
    log.storm("other", topic, START + 10 * MINUTE, 20)
    of_log = analysed(log)[1]
    of_journal = of_stories({"g": removals("slow", 5, 1)}, Limits())
    assert kinds([*without_repeats(of_log, of_journal), *of_journal]) == [("g", "loop"), ("other", "storm")]


def test_stories_are_kept_over_runs() -> None:
    """A slot of the journal is used again, and a story is written several times while it runs."""
    first = Journal.of([story(1, 1, "member joined", "a"), story(2, 2, "member joined", "b", outcome="")])
    later = Journal.of([story(2, 2, "member joined", "b"), story(51, 9, "member left", "a")])
    both = Journal.kept(first.table(), "").extended(later)
    assert [(one["number"], one["outcome"]) for one in both.stories["g"]] == [
        (1, "Stable"),
        (2, "Stable"),
        (51, "Stable"),
    ]
    assert both.since_ms == START + MINUTE
    assert [row["host"] for row in both.table().to_pylist()] == ["10.0.0.7"] * 3
