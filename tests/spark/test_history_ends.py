"""Where the topics' logs ended: read from files, and from a cluster whose logs grow meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.client.metadata import Partition, Topic
from kohort.spark.history.cluster import ends_over_time
from kohort.spark.history.ends import Ends, read_ends
from kohort.spark.history.store import HistoryFailed

NOON, ONE = 1_714_564_800_000, 1_714_568_400_000
"""Instants of 1 May 2024."""


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_instants_may_be_of_any_unit(tmp_path: Path, unit: str, zone: str | None) -> None:
    at = pa.array([NOON * 1000], pa.timestamp("us")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, tz=zone))
    table = pa.table({"topic": ["t"], "partition": [0], "at": at, "end": [7]})
    pq.write_table(table, tmp_path / "ends.parquet")
    for ends in (Ends.of(table), read_ends(str(tmp_path / "ends.parquet"))):
        assert [(times.tolist(), end.tolist()) for times, end in ends.series.values()] == [([NOON], [7])]


@pytest.mark.parametrize(
    ("noon", "one"),
    [
        ("2024-05-01T12:00:00Z", "2024-05-01T13:00:00Z"),
        ("2024-05-01 12:00:00", "2024-05-01 13:00:00"),
        ("2024-05-01 12:00:00.000", "2024-05-01 13:00:00.000"),
        (str(NOON), str(ONE)),
    ],
)
def test_instants_in_csv_may_be_text_or_milliseconds(tmp_path: Path, noon: str, one: str) -> None:
    place = tmp_path / "ends.csv"
    place.write_text(f"topic,partition,at,end\nt,0,{noon},100\nt,0,{one},200\n")
    [(at, end)] = read_ends(str(place)).series.values()
    assert (at.tolist(), end.tolist()) == ([NOON, ONE], [100, 200])


def test_a_file_that_is_no_table_of_ends_is_named(tmp_path: Path) -> None:
    place = tmp_path / "ends.csv"
    for text, said in (("topic,at,end\nt,1,2\n", "lack partition"), ("topic,partition,at,end\nt,0,noon,2\n", "noon")):
        place.write_text(text)
        with pytest.raises(HistoryFailed, match=rf"ends\.csv: .*{said}"):
            read_ends(str(place))


class Growing:
    """A cluster at the instant 150,000. Partition 0 has a record for every millisecond, partition 1 only old ones."""

    def topics(self, _: object = None) -> dict[str, Topic]:
        return {"t": Topic("t", tuple(Partition("t", number, 0, 0, (), ()) for number in range(2)))}

    def offsets(self, asked: list[tuple[str, int]], at: str | int = "latest") -> dict[tuple[str, int], int]:
        if isinstance(at, str):
            return dict.fromkeys(asked, 0 if at == "earliest" else 150000)
        return {(topic, partition): -1 if partition else at for topic, partition in asked}


def test_the_last_end_is_that_of_its_instant() -> None:
    cluster: Any = Growing()
    ends = ends_over_time(cluster, [("t", 0), ("t", 1)], np.array([0, 30_000, 60_000]))
    assert ends.series["t", 0][1].tolist() == [0, 30_000, 60_000]
    assert ends.series["t", 1][1].tolist() == [150_000] * 3
