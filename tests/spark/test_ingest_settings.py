"""The settings that stay beside a checkpoint, written and read without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_directory import LocalDirectory

from kohort.spark.lake.ingest_settings import Kept, SettingsDiffer, load, save
from kohort.spark.lake.row_shape import JsonSettings

FIRST = JsonSettings({"type": "struct", "fields": []})
SECOND = JsonSettings({"type": "struct", "fields": []}, "permissive", keep_rest=False)


def test_a_planned_batch_keeps_the_settings_that_it_was_planned_with(tmp_path: Path) -> None:
    checkpoint = LocalDirectory(tmp_path)
    kept = load(checkpoint, ["topic"]).then(FIRST, 0)
    assert kept.then(FIRST, 7) is kept
    changed = kept.then(SECOND, 4).then(None, 9)
    save(checkpoint, changed)
    again = load(checkpoint, ["topic"])
    assert again == changed
    assert [again.of(batch) for batch in (0, 3, 4, 8, 9, 100)] == [FIRST, FIRST, SECOND, SECOND, None, None]
    # A change that no batch was planned with is no version of its own.
    assert changed.then(FIRST, 4) == Kept(("topic",), ((0, FIRST), (4, FIRST)))
    with pytest.raises(SettingsDiffer, match="partitioned by topic and this run asks for topic, date"):
        load(checkpoint, ["topic", "date"])
