"""The view of topics: a changed view is right, leaves the former one as it was, and copies only what it must."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator import topics as topics_module
from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.topics import LONGEST_CACHED, Topics, hash_of, topics_of

NAMES = st.sampled_from([f"topic-{number}" for number in range(12)])
CHANGES = st.lists(st.dictionaries(NAMES, st.integers(0, 5), max_size=4), max_size=12)
"""Topics and how many partitions they have from now on; 0: it is deleted."""


@given(CHANGES)
def test_any_changes_give_the_view_that_they_would_give_at_once(changes: list[dict[str, int]]) -> None:
    views: list[tuple[Topics, dict[str, TopicSpec]]] = [(Topics(), {})]
    for number, change in enumerate(changes):
        topics, known = views[-1]
        present = []
        specs = dict(known)
        for name, partitions in change.items():
            spec = specs.pop(name, None)
            if partitions:
                topic_id = spec.topic_id if spec is not None else f"{name}.{number}".ljust(16)[:16].encode()
                specs[name] = TopicSpec(topic_id, name, partitions)
                present.append(specs[name])
        views.append((topics.with_changed(change, present), specs))
    for topics, specs in views:
        assert dict(topics.by_name) == specs
        assert dict(topics.by_id) == {spec.topic_id: spec for spec in specs.values()}
        assert len(topics.by_name) == len(topics.by_id) == len(specs)
        assert topics == topics_of(specs.values())
        assert hash_of(topics, specs) == hash_of(topics_of(specs.values()), specs)
        assert all(name in topics.by_name for name in specs)
        assert "absent" not in topics.by_name


def test_a_change_copies_one_bucket_and_not_ten_thousand_topics() -> None:
    topics = topics_of(TopicSpec(number.to_bytes(16, "big"), f"t{number}", 1) for number in range(10_000))
    other = topics.with_changed(["t7"], [TopicSpec((7).to_bytes(16, "big"), "t7", 2)])
    for before, after in ((topics.by_name, other.by_name), (topics.by_id, other.by_id)):
        same = [a is b for a, b in zip(before._buckets, after._buckets, strict=True)]  # type: ignore[attr-defined]
        assert same.count(False) == 1
        assert max(map(len, after._buckets)) < 100  # type: ignore[attr-defined]


def test_names_that_no_topic_has_are_not_kept() -> None:
    """A member may subscribe to thousands of names of thousands of characters."""
    before = topics_module._cached_bucket_of.cache_info().currsize
    topics = topics_of([])
    assert all(topics.by_name.get("x" * (LONGEST_CACHED + number)) is None for number in range(1, 1_000))
    assert topics_module._cached_bucket_of.cache_info().currsize == before
    assert topics.by_name.get("x" * LONGEST_CACHED) is None
