"""Which partition a keyed record goes to: murmur2 of the key, as in Kafka's Java producer.

Source: Apache Kafka, `Utils.murmur2` and `BuiltInPartitioner`; the hash is Austin Appleby's MurmurHash2 (public
domain) with Kafka's seed. kafka-python, aiokafka and librdkafka's `murmur2_random` agree with it; librdkafka's own
default (`consistent_random`, a CRC-32) does not.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
WORD = 0xFFFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among this many partitions; the empty key is a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    size = len(data)
    whole = size & ~3
    value = SEED ^ size
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & WORD
        word = (word ^ word >> 24) * MULTIPLIER & WORD
        value = value * MULTIPLIER & WORD ^ word
    if whole < size:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & WORD
    value = (value ^ value >> 13) * MULTIPLIER & WORD
    return value ^ value >> 15
