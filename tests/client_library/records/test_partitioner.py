"""Keys go where Kafka's Java producer puts them; kafka-python is the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as oracle

from kohort.client.records.partitioner import murmur2, partition_for_key

# Apache Kafka, UtilsTest.testMurmur2 (signed there).
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_vectors_of_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_any_key_agrees_with_kafka_python(key: bytes) -> None:
    assert murmur2(key) == oracle(key) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_a_partition_is_one_of_those_there(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
