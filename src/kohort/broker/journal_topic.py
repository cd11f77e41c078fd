"""The groups' journal in its topic, `__kohort_journal`: written with each turn, read at a start.

The journal is told what the shards' effects tell, and at the end of a turn the stories that made progress are appended
to the topic's one partition, in the turn's own commit. A story is a record: its key is the group and a slot, its value
JSON that any Kafka tool can read. The topic is compacted, so it holds so many stories a group, and has a retention.

Nothing depends on the journal. A record or batch that cannot be read is passed over with a complaint, and a start reads
no more than what the journal may hold in memory, from the end of the topic backwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kohort.broker.partition import Partition
from kohort.broker.state import BrokerState
from kohort.broker.topics import JOURNAL_TOPIC
from kohort.broker.turn import Complaint
from kohort.storage.protocol import BatchInfo, StorageError
from kohort.wire.batches import check_crc, decode_records, read_header
from kohort.wire.errors import ProtocolError

HELD_UP = "a member was removed because it held up its group"


def write_journal(state: BrokerState) -> None:
    """At the end of a turn, before its metadata is written: the topic may have to be created for it."""
    for group, delay in state.journal.take_delays():
        values = {"group": group, **msgspec.structs.asdict(delay)}
        told = tuple((name, value) for name, value in values.items() if value not in ("", None))
        state.complain(Complaint("rebalance held up", HELD_UP, told))
    records = state.journal.take_changed()
    if records and state.config.journal_enable:
        state.append_records(state.partitions[_topic_id(state)][0], records)


def create_journal_topic(state: BrokerState) -> None:
    config = state.config
    configs = {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(config.journal_retention_ms),
        "retention.bytes": str(config.journal_retention_bytes),
    }
    factor = min(config.offsets_topic_replication_factor, len(state.nodes))
    state.create_topic(JOURNAL_TOPIC, state.place(1, factor), configs)


def _topic_id(state: BrokerState) -> bytes:
    if state.topic(JOURNAL_TOPIC) is None:  # the data directory is older than the journal
        create_journal_topic(state)
    return state.catalog.topics[JOURNAL_TOPIC].topic_id


def read_journal(state: BrokerState) -> None:
    """Fill the journal's memory at a start."""
    topic = state.topic(JOURNAL_TOPIC)
    if topic is None:
        return
    partition = state.partitions[topic.topic_id][0]
    newest: dict[bytes, bytes] = {}
    for key, value in _records(state, partition):
        newest.pop(key, None)
        newest[key] = value
    bad = 0
    for value in newest.values():
        try:
            state.journal.restore(value)
        except ValueError:
            bad += 1
    if bad:
        state.complain(Complaint("damaged data", f"{JOURNAL_TOPIC}: records that are no stories, passed over: {bad}"))


def _records(state: BrokerState, partition: Partition) -> Iterator[tuple[bytes, bytes]]:
    for batch in _last_batches(state, partition):
        try:
            data = state.storage.read(partition.log, batch.base_offset, 0)[0].data
            header = read_header(data)
            if not check_crc(data, header):
                raise ProtocolError("its checksum is wrong")
            records = decode_records(data, header)
        except (StorageError, ProtocolError) as error:
            what = f"{JOURNAL_TOPIC}-0: the batch at offset {batch.base_offset} is passed over: {error}"
            state.complain(Complaint("damaged data", what))
            continue
        for record in records:
            if record.key is not None and record.value is not None:
                yield record.key, record.value


def _last_batches(state: BrokerState, partition: Partition) -> list[BatchInfo]:
    """Those at the end of the log that fit into the journal's memory."""
    try:
        found = list(state.storage.batches(partition.log, partition.start_offset))
    except StorageError as error:
        state.complain(Complaint("damaged data", f"{JOURNAL_TOPIC}-0 cannot be read: {error}"))
        return []
    room = state.config.journal_max_bytes
    kept = len(found)
    while kept > 0 and room >= found[kept - 1].size:
        kept -= 1
        room -= found[kept].size
    return found[kept:]
