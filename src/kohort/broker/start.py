"""Restores the running state from stored logs: the replay, and the first turn's writes.

The replay reads the metadata log, opens every partition, and applies to each state machine the log that it owns.
`Broker.load` writes nothing. The first turn writes what is missing: the cluster's id and the offsets topic in an empty
data directory, new leaders for partitions whose broker is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kohort.broker.journal.topic import read_journal
from kohort.broker.logs.newest_records import all_records, newest_records
from kohort.broker.moves import replace_absent_leaders
from kohort.broker.sharing.founding import found_secret, found_topics, new_cluster_id
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import (
    METADATA_LOG,
    OFFSETS_TOPIC,
    SHARES_TOPIC,
    TRANSACTIONS_TOPIC,
    Topic,
    UnknownRecord,
)
from kohort.broker.upstream.following import advertise
from kohort.coordinator.events import GroupConfigsChanged, Loaded
from kohort.coordinator.state_machine import StateMachine
from kohort.storage.protocol import LogInfo, LogKey, StorageError
from kohort.wire.errors import ProtocolError

Replaying = Callable[[int, int], object]
"""Called now and then while logs are read, with the number of those that are read, and of all."""


def unwatched(done: int, logs: int) -> None: ...


def replay(state: BrokerState, replaying: Replaying = unwatched) -> None:
    if state.slots is not None:
        return  # metadata and slots come as events (sharing.py)
    logs = read_catalog(state)
    if logs is None:
        return
    machines = add_machines(state)
    open_partitions(state, logs, lambda: replaying(0, len(machines)))
    for index, machine in enumerate(machines):
        load(state, machine, partial(replaying, index, len(machines)))
    read_journal(state)
    advertise(state)


def read_catalog(state: BrokerState) -> dict[LogKey, LogInfo] | None:
    """Apply the metadata log. Returns the other logs; None if the data directory is empty."""
    logs = {info.key: info for info in state.storage.logs()}
    metadata = logs.pop(METADATA_LOG, None)
    if metadata is None:
        state.catalog.cluster_id = new_cluster_id(state)
        return None
    try:
        for record, _ in newest_records(state.storage, METADATA_LOG, metadata.start_offset):
            state.catalog.apply(record)
    except UnknownRecord as error:
        raise StorageError(f"the data is of a newer format: {error}") from None
    state.topics.resume(metadata)
    return logs


def add_machines(state: BrokerState) -> list[StateMachine]:
    """The state machines of the catalog, each without state."""
    shards = [state.groups.add(index) for index in range(len(state.catalog.topics[OFFSETS_TOPIC].partitions))]
    transactions = state.catalog.topics.get(TRANSACTIONS_TOPIC)
    ids = len(transactions.partitions) if transactions is not None else 0
    shares = state.catalog.topics.get(SHARES_TOPIC)
    states = len(shares.partitions) if shares is not None else 0
    machines: list[StateMachine] = [*shards, *(state.transactions.add(index) for index in range(ids))]
    return [*machines, *(state.shares.add(index) for index in range(states))]


def open_partitions(
    state: BrokerState, logs: dict[LogKey, LogInfo], opening: Callable[[], object] = lambda: None
) -> None:
    for topic in state.catalog.topics.values():
        opening()
        if topic.is_followed:
            state.topics.open_followed(topic)
            continue
        state.topics.partitions[topic.topic_id] = [
            state.topics.open_partition(topic, index, _stored(logs, topic, index))
            for index in range(len(topic.partitions))
        ]
    spare = state.catalog.spare_logs
    left = [key for key in logs if key.topic_id in spare and key.partition >= spare[key.topic_id]]
    state.topics.resume_spare_logs([logs.pop(key) for key in sorted(left)])
    if logs:
        raise StorageError(f"the data directory holds logs of no topic, such as {sorted(logs)[0]}: it is damaged")


def _stored(logs: dict[LogKey, LogInfo], topic: Topic, index: int) -> LogInfo:
    info = logs.pop(topic.log_key(index), None)
    if info is None:
        raise StorageError(f"the data directory lacks the log of {topic.name}-{index}: it is damaged")
    return info


def load(state: BrokerState, machine: StateMachine, reading: Callable[[], object] = lambda: None) -> None:
    """Apply the records of a state machine's log. The machine gets `Loaded` in the first turn afterwards. `reading` is
    called now and then meanwhile."""
    partition = state.topics.partition_named(machine.log)
    if partition.end_offset == partition.start_offset:
        return
    read = all_records if machine.log.topic == SHARES_TOPIC else newest_records
    for record, timestamp in read(state.storage, partition.log, partition.start_offset, reading):
        try:
            machine.apply(record, timestamp)
        except ProtocolError as error:
            raise StorageError(
                f"{machine.log} holds a record that this version cannot read ({error}); "
                "a newer kohort wrote it, or it is damaged"
            ) from None


def write_first_records(state: BrokerState) -> None:
    """The operations of the first turn; none on an ordinary restart."""
    if state.slots is not None:
        return  # they come with the slots (sharing.py)
    if not state.catalog.offsets_partitions:
        _found_cluster(state)
    found_secret(state)
    replace_absent_leaders(state)  # after a restart with fewer brokers
    state.groups.tell_topics(at_start=True)
    for group_id, configs in state.catalog.group_configs.items():
        state.ask(state.shard_of(group_id), GroupConfigsChanged(group_id, configs))
    state.machines.ask_all(Loaded())
    # A stop may have interrupted the deletion of a topic's offsets.
    gone = {name for shard in state.shards for name in shard.hard.topics} - state.catalog.topics.keys()
    state.groups.topics_deleted(tuple(sorted(gone)))


def _found_cluster(state: BrokerState) -> None:
    found_topics(state)
    for index in range(state.catalog.offsets_partitions):
        state.groups.add(index)
