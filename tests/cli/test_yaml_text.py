"""YAML that the commands print is what PyYAML, as the oracle, reads back as the same document."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kohort.cli.yaml_text import yaml_text

WORDS = st.sampled_from(
    [
        *("no", "Yes", "ON", "null", "~", "true", "y", "1", "1.10", "0x1f", "1e3", "1_000", "12:30:00", "2026-11-25"),
        *("-", "--", "---", "...", "?", ":", "#", "a:b", "a:", "b{", "[]", "{}", "=", "<<", "'", '"', "\\", " a"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | WORDS
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_it_is_read_back(document: Any) -> None:
    assert yaml.safe_load(yaml_text(document)) == document


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "[]"),
        ({"a": {}, "b": [], "c": None}, "a: {}\nb: []\nc: null"),
        ([{"topic": "a.b", "partitions": [0, 1]}], "- topic: a.b\n  partitions:\n    - 0\n    - 1"),
        (["two words", "no", "1.10", ""], '- two words\n- "no"\n- "1.10"\n- ""'),
        ((1.5, float("inf"), 1e-9), "- 1.5\n- .inf\n- 1.0e-09"),
    ],
)
def test_what_it_looks_like(document: Any, text: str) -> None:
    assert yaml_text(document) == text
