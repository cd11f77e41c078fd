"""The journal in its topic, `__kohort_journal`: written with each turn, read at a start.

At the end of a turn the stories that have changed are appended to the topic's only partition, in the turn's commit, and
the new entries about transactions. A story is a record: its key is the group and a slot, its value is JSON that any
Kafka tool can read. The topic is compacted by these keys, which limits the stories of a group, and it has a retention.
An entry about a transaction is a record of the same kind, with the transactional id in the place of the group.

No decision of the broker depends on the journal. A record or batch that cannot be read is skipped and reported in the
log. A start reads from the end of the topic, and stops at the journal's limit of memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kohort.broker.logs.partition import Partition
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import JOURNAL_TOPIC
from kohort.broker.turn import Complaint
from kohort.coordinator.journal.transaction_aborts import TransactionAborts
from kohort.storage.protocol import DamagedBatch, StorageError, StoredBatch
from kohort.wire.batches import check_crc, decode_columns, read_header
from kohort.wire.errors import ProtocolError

READ_BYTES = 1024 * 1024
HELD_UP = "a member was removed because it held up its group"
REFUSED = "an assignment was refused"


def write_journal(state: BrokerState) -> None:
    """Called at the end of a turn, before its metadata records are appended: the topic may have to be created."""
    _tell_the_operator(state)
    records = [*state.journal.take_changed(), *state.transactions.aborts.take_changed()]
    if records and state.config.journal_enable:
        state.turn.append_records(state.topics.partitions[_topic_id(state)][0], records)


def _tell_the_operator(state: BrokerState) -> None:
    for group, delay in state.journal.take_delays():
        state.turn.complain(
            Complaint("rebalance held up", HELD_UP, _told(group=group, **msgspec.structs.asdict(delay)))
        )
    for group, why, story in state.journal.take_refused():
        told = _told(group=group, why=why)
        if story is not None:
            who = _told(member_id=story.cause.member_id, client_id=story.cause.client_id)
            told = (*told, ("story", story.number), ("began_with", story.cause.what), *who)
        state.turn.complain(Complaint("assignment refused", REFUSED, told))


def _told(**values: str | int | None) -> tuple[tuple[str, str | int], ...]:
    return tuple((name, value) for name, value in values.items() if value is not None and value != "")


def create_journal_topic(state: BrokerState) -> None:
    config = state.config
    configs = {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(config.journal_retention_ms),
        "retention.bytes": str(config.journal_retention_bytes),
    }
    factor = min(config.offsets_topic_replication_factor, len(state.nodes))
    state.topics.create(JOURNAL_TOPIC, state.topics.place(1, factor), configs)


def _topic_id(state: BrokerState) -> bytes:
    if state.topic(JOURNAL_TOPIC) is None:  # an earlier version wrote the data directory
        create_journal_topic(state)
    return state.catalog.topics[JOURNAL_TOPIC].topic_id


def read_journal(state: BrokerState) -> None:
    """Fill the journal's memory at a start."""
    topic = state.topic(JOURNAL_TOPIC)
    if topic is None:
        return
    partition = state.topics.partitions[topic.topic_id][0]
    newest: dict[bytes, bytes] = {}
    for key, value in _records(state, partition):
        newest.pop(key, None)
        newest[key] = value
    bad = 0
    for value in newest.values():
        try:
            (state.transactions.aborts if TransactionAborts.is_entry(value) else state.journal).restore(value)
        except ValueError:
            bad += 1
    if bad:
        state.turn.complain(
            Complaint("damaged data", f"{JOURNAL_TOPIC}: {bad} records that are not stories were skipped")
        )


def _records(state: BrokerState, partition: Partition) -> Iterator[tuple[bytes, bytes]]:
    for batch in _readable_batches(state, partition):
        try:
            header = read_header(batch.data)
            if not check_crc(batch.data, header):
                raise ProtocolError("its checksum is wrong")
            columns = decode_columns(batch.data, header)
        except ProtocolError as error:
            _skip(state, batch.base_offset, error)
            continue
        for key, value in zip(columns.keys, columns.values, strict=True):
            if key is not None and value is not None:
                yield key, value


def _readable_batches(state: BrokerState, partition: Partition) -> Iterator[StoredBatch]:
    """The last batches of the log. After a failed read they are read one by one, and the damaged batch is skipped."""
    storage, log = state.storage, partition.log
    size = READ_BYTES
    try:
        offset = _first_offset(state, partition)
        while True:
            try:
                batches = storage.read(log, offset, size)
            except DamagedBatch as error:
                if size:
                    size = 0
                    continue
                _skip(state, offset, error)
                offset = next(storage.batches(log, offset)).last_offset + 1
                size = READ_BYTES
                continue
            if not batches:
                return
            yield from batches
            offset = batches[-1].last_offset + 1
    except StorageError as error:
        state.turn.complain(Complaint("damaged data", f"{JOURNAL_TOPIC}-0 cannot be read: {error}"))


def _first_offset(state: BrokerState, partition: Partition) -> int:
    """The offset from which on the batches fit into the journal's memory. Visits few batches before it."""
    span = 1024
    while True:
        first = max(partition.end_offset - span, partition.start_offset)
        batches = list(state.storage.batches(partition.log, first))
        room = state.config.journal_max_bytes
        for batch in reversed(batches):
            room -= batch.size
            if room < 0:
                return batch.last_offset + 1
        if first == partition.start_offset:
            return first
        span *= 4


def _skip(state: BrokerState, offset: int, error: Exception) -> None:
    what = f"{JOURNAL_TOPIC}-0: the batch at offset {offset} is skipped: {error}"
    state.turn.complain(Complaint("damaged data", what))
