"""Groups are placed as Kafka places them: by Java's hash of the id."""

from __future__ import annotations

import pytest

from kohort.coordinator.shard import partition_for

INT_MAX = 2**31 - 1


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # the hash is the least int32, of which Kafka makes 0
        ("The quick brown fox jumps over the lazy dog", 609428141),
        ("é", 0xE9),
        ("😀", 0xD83D * 31 + 0xDE00),  # two UTF-16 units
    ],
)
def test_known_hashes(text: str, hashed: int) -> None:
    assert partition_for(text, INT_MAX) == hashed % INT_MAX
    assert partition_for(text, 50) == hashed % 50


def test_negative_hashes_lose_their_sign() -> None:
    """As Math.abs does."""
    groups = [f"the-group-{number}" for number in range(100)] + [f"console-consumer-{n}" for n in range(100)]
    assert {_java_hash(group) < 0 for group in groups} == {True, False}
    for group in groups:
        assert partition_for(group, 50) == abs(_java_hash(group)) % 50
        assert partition_for(group, 1) == 0


def _java_hash(text: str) -> int:
    """String.hashCode of ASCII text, by its definition: s[0]*31^(n-1) + ... + s[n-1] in int32."""
    total = sum(ord(char) * 31 ** (len(text) - 1 - index) for index, char in enumerate(text))
    return (total + 2**31) % 2**32 - 2**31
