"""The reader of a group, from the metadata of its offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.admin.commit_metadata import LONGEST_NAME, GroupReader, group_reader_of

MOST_BYTES = 4_096
"""The brokers' default limit (offset.metadata.max.bytes)."""

TEXT = st.none() | st.text()


@given(TEXT, TEXT, st.none() | st.integers(0), TEXT, TEXT)
def test_commit_metadata_is_read_back_and_never_too_long(
    name: str | None, run: str | None, batch: int | None, application: str | None, host: str | None
) -> None:
    holder = GroupReader("0f00", name, run, batch, application, host, 7)
    metadata = holder.metadata()
    read = group_reader_of(metadata)
    assert read is not None
    assert (read.query, read.batch, read.process) == ("0f00", batch, 7)
    assert read.name == (name[:LONGEST_NAME] if name is not None else None)
    long = GroupReader("0f00", "\N{GRINNING FACE}" * 5_000, "r", 1, "\0" * 5_000, "h" * 5_000, 1)
    assert len(long.metadata().encode()) <= MOST_BYTES


@pytest.mark.parametrize("metadata", ["", "kohort-spark", "{", "[]", "null", "7", '{"by":"me","query":"q"}'])
def test_other_programs_metadata_says_nothing(metadata: str) -> None:
    assert group_reader_of(metadata) is None


def test_fields_of_another_kind_are_not_believed() -> None:
    holder = group_reader_of('{"by":"kohort-spark","query":1,"batch":"7","process":true,"more":{}}')
    assert holder == GroupReader()
    assert str(holder) == "a Spark query"


def test_it_reads_as_a_sentence() -> None:
    assert str(GroupReader("0f00", batch=0)) == "Spark query 0f00, batch 0"
    assert str(GroupReader("0f00", "lake", host="h")) == "Spark query lake (0f00) on h"
