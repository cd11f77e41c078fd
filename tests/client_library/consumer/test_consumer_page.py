"""docs/how-to/consumer.md: its program runs unchanged except for the address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from page_programs import definitions
from running_tasks import running, until

from kohort.client import ServerError
from kohort.client.admin.groups import Committer
from kohort.client.cluster import Cluster
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


@pytest.fixture
def page(three_brokers: Any) -> dict[str, Any]:
    """The program's definitions, and its consumers as they start; each test has a topic and a group of its own."""
    found = definitions("how-to/consumer.md", three_brokers.bootstrap_servers)
    found["consumers"] = []

    class Known(found["Orders"]):  # type: ignore[name-defined,misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            found["consumers"].append(self)

    found["Orders"] = Known
    return found


@pytest.fixture
def orders(cluster: Cluster) -> Iterator[None]:
    cluster.create_topic("orders", 4)
    yield
    cluster.delete_topic("orders")
    if "billing" in {group.group_id for group in cluster.list_groups()}:
        cluster.delete_group("billing")


def delete_records(cluster: Cluster, topic: str, partition: int, until: int) -> None:
    [leader] = [one.leader for one in cluster.topics([topic])[topic].partitions if one.index == partition]
    row = DeleteRecordsPartition(partition_index=partition, offset=until)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic, partitions=(row,)),), timeout_ms=5_000)
    answer = cluster.connection(leader).request(request, DeleteRecordsResponse)
    assert [row.low_watermark for row in answer.topics[0].partitions] == [until]


@pytest.mark.usefixtures("orders")
async def test_the_program(page: dict[str, Any], cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    consumers = page["consumers"]
    for partition in range(4):
        cluster.produce("orders", partition, [NewRecord(None, b"v", 0)] * 25)
    async with running(page["main"]()) as [first]:
        await until(lambda: consumers and len(consumers[0].positions) == 4)
        async with running(page["main"]()):
            await until(lambda: [len(consumer.positions) for consumer in consumers] == [2, 2])
            first.cancel()
            await until(lambda: len(consumers[1].positions) == 4)
            await until(lambda: all(offset == 25 for offset in consumers[1].positions.values()))
    assert sum(entry.offset for entry in cluster.committed("billing").values()) == 100
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("orders ")]
    assert len(lines) == len(set(lines)) == 100


@pytest.mark.usefixtures("orders")
async def test_positions_outside_of_the_log(page: dict[str, Any], cluster: Cluster) -> None:
    """One position was never committed, one has been deleted, and one is after the log's end."""
    for partition in range(4):
        cluster.produce("orders", partition, [NewRecord(None, b"v", 0)] * 25)
        delete_records(cluster, "orders", partition, 20)
    cluster.commit("billing", {("orders", 1): 3, ("orders", 2): 500})
    begun: dict[Any, int] = {}

    class Watched(page["Orders"]):  # type: ignore[name-defined,misc]
        async def on_assigned(self, partitions: Any) -> None:
            await super().on_assigned(partitions)
            begun.update(self.positions)

    page["Orders"] = Watched
    async with running(page["main"]()) as [program]:
        await until(lambda: program.done() or (begun and set(page["consumers"][0].positions.values()) == {25}))
    assert begun == {("orders", 0): 20, ("orders", 1): 3, ("orders", 2): 500, ("orders", 3): 20}


@pytest.mark.usefixtures("orders")
async def test_partitions_lost_during_the_lookup_of_positions(page: dict[str, Any], cluster: Cluster) -> None:
    """The consumer does not continue with the partition, and does not block the loop."""

    class Removed(page["Orders"]):  # type: ignore[name-defined,misc]
        removed = False

        async def committed(self, partitions: Any = None) -> Any:
            if not self.removed:
                self.removed = True
                gone = Committer(self.member_id, -1)
                await asyncio.to_thread(cluster.leave_as, "billing", gone, classic=True)
                await until(lambda: not self.owned)
            return await super().committed(partitions)

        async def on_assigned(self, partitions: Any) -> None:
            await super().on_assigned(partitions)
            seen.append(set(self.positions))

    seen: list[set[Any]] = []
    page["Orders"] = partial(Removed, group_protocol="classic", heartbeat_interval_ms=50)
    async with running(page["main"]()) as [program]:
        await until(lambda: program.done() or len(seen) == 2)
    assert seen == [set(), {("orders", partition) for partition in range(4)}]


async def test_transaction_markers_are_passed_and_other_errors_told(page: dict[str, Any]) -> None:
    place = ("orders", 0)
    key, value = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00"
    transactional = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    marker = encode_batch([NewRecord(key, value, 0)], base_offset=7, **transactional)  # type: ignore[arg-type]
    consumer = page["Orders"]("127.0.0.1:1", "billing")
    consumer.positions = {place: 7}
    await consumer.work([FetchedPartition(*place, ErrorCode.NONE, 8, 8, 0, marker)])
    assert consumer.positions == {place: 8}
    with pytest.raises(ServerError, match="TOPIC_AUTHORIZATION_FAILED"):
        await consumer.work([FetchedPartition(*place, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, 0, 0, b"")])
