"""The two servers, with the same settings, as processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench import _kafka as apache
from bench._process import serving
from peer_servers import wait_for_the_coordinator
from socket_client import Address, Wire
from wire_world import OFFSETS_PARTITIONS, wait_until_known

from kohort.coordinator.assignors.spec import TopicSpec
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

USUAL = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
}
OF_KOHORT = {"group.heartbeat.hold.enable": "false", "group.storm.rebalance.delay.ms": "0"}
"""What Kafka does not have: heartbeats are answered at once, and rebalances in a row stay open for nobody."""
OF_KAFKA = {"group.consumer.assignor.offload.enable": "false"}


@dataclass(frozen=True)
class Pair:
    """Two running servers, and the topics that all runs share, on each."""

    addresses: Mapping[str, Address]
    shared: Mapping[str, Mapping[str, TopicSpec]]


@contextmanager
def both(
    class_path: str, settings: Mapping[str, str], topics: Mapping[str, int], java_options: Sequence[str] = apache.BRIEF
) -> Iterator[Pair]:
    with ExitStack() as stack:
        wanted = USUAL | settings
        _, kafka = stack.enter_context(apache.kafka(class_path, wanted | OF_KAFKA, java_options=java_options))
        kohort_settings = [f"{name}={value}" for name, value in (wanted | OF_KOHORT).items()]
        _, kohort, _ = stack.enter_context(serving(*kohort_settings))
        addresses = {"kafka": kafka, "kohort": kohort}
        for address in addresses.values():
            wait_for_the_coordinator(address)
        yield Pair(addresses, {name: created(address, topics) for name, address in addresses.items()})


def created(address: Address, topics: Mapping[str, int]) -> dict[str, TopicSpec]:
    rows = tuple(
        CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()
    )
    wire = Wire(address, "operator")
    answer = wire.call(CreateTopicsRequest(topics=rows, timeout_ms=30_000), 7, CreateTopicsResponse)
    assert not any(row.error_code for row in answer.topics), answer
    made = {row.name: TopicSpec(row.topic_id, row.name, topics[row.name]) for row in answer.topics}
    wanted = {(spec.topic_id, index) for spec in made.values() for index in range(spec.partitions)}
    wait_until_known(wire, "probe.", tuple(made), wanted)
    wire.close()
    return made
