"""The APIs that clients of a gateway are told of: kohort's own of groups, and those of the upstream cluster that pass.

Produce ends at version 9 and Fetch at 15: the answers of later versions name addresses of brokers (KIP-951), and the
gateway does not look into records. AddOffsetsToTxn (25) and TxnOffsetCommit (28) are left out: the upstream cluster
would commit offsets of groups that it does not have. Producers' transactions without offsets pass. AddPartitionsToTxn
and EndTxn end before the versions of KIP-890, which take Produce 12. There is no telemetry (71, 72), and there are no
share groups or streams groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.broker.apis import APIS, advertised
from kohort.wire.schemas.metadata_records import UpstreamApi

OWN_KEYS = frozenset((*range(8, 17), 18, 42, 47, 68, 69)) - {10}
"""Join and the like, offsets, lists and descriptions of groups; ApiVersions, because the coordinator notes the
client's software. FindCoordinator (10) is decided by its content."""
FIND_COORDINATOR = 10

FORWARDED: Mapping[int, int] = {
    0: 9,
    1: 15,
    2: 11,
    3: 13,
    17: 1,
    19: 7,
    20: 6,
    21: 2,
    22: 5,
    23: 4,
    24: 3,
    26: 4,
    29: 3,
    30: 3,
    31: 3,
    32: 4,
    33: 2,
    34: 2,
    35: 5,
    36: 2,
    37: 3,
    38: 3,
    39: 2,
    40: 2,
    41: 3,
    43: 2,
    44: 1,
    45: 1,
    46: 0,
    48: 1,
    49: 1,
    50: 0,
    51: 0,
    57: 2,
    60: 2,
    61: 0,
    65: 0,
    66: 2,
    74: 1,
    75: 0,
}
"""API key: the last version that passes. Kafka 4.3 has no later one of most."""
TOPIC_IDS = {8: 9, 9: 9}
"""The last versions of OffsetCommit and OffsetFetch that name topics; later ones take topic ids."""
METADATA, METADATA_WITH_IDS = 3, 10
PRODUCE = 0
"""Clients are told of it from version 0 on, because librdkafka takes a higher one for a broker without record batches
(KAFKA-18659)."""
NEEDED = {PRODUCE: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata"}
"""The APIs without which no client works."""


def told(upstream: Iterable[Mapping[int, tuple[int, int]]], *, consumer_groups: bool) -> tuple[UpstreamApi, ...]:
    """What clients are told. `upstream`: first and last version by API key, of each broker."""
    brokers = list(upstream)
    has_ids = all(versions.get(METADATA, (0, 0))[1] >= METADATA_WITH_IDS for versions in brokers)
    found: dict[int, tuple[int, int]] = {}
    for api in advertised(consumer_groups=consumer_groups and has_ids, share_groups=False):
        if api.api_key in OWN_KEYS:
            last = api.max_version if has_ids else min(api.max_version, TOPIC_IDS.get(api.api_key, api.max_version))
            found[api.api_key] = api.min_version, last
    for key, most in (*FORWARDED.items(), (FIND_COORDINATOR, APIS[FIND_COORDINATOR].last)):
        first, last = _common(brokers, key)
        if first <= min(most, last):
            found[key] = 0 if key == PRODUCE else first, min(most, last)
    return tuple(UpstreamApi(key=key, first=first, last=last) for key, (first, last) in sorted(found.items()))


def lacking(upstream: Iterable[Mapping[int, tuple[int, int]]]) -> str:
    """Why clients cannot use the cluster, because no version of a needed API passes; "" if they can. `upstream` as in
    `told`."""
    brokers = list(upstream)
    found = []
    for key, name in NEEDED.items():
        (first, last), most = _common(brokers, key), FORWARDED[key]
        if last < 0:
            found.append(f"a broker does not serve {name}")
        elif first > last:
            found.append(f"the brokers have no version of {name} in common")
        elif first > most:
            found.append(f"the brokers serve {name} from version {first}, and the gateway passes it up to {most}")
    return "; ".join(found)


def _common(brokers: list[Mapping[int, tuple[int, int]]], key: int) -> tuple[int, int]:
    ranges = [versions.get(key, (0, -1)) for versions in brokers]
    return max(low for low, _ in ranges), min(high for _, high in ranges)
