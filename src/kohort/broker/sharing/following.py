"""A node among nodes that serve at once: follows the metadata log of the controller, takes and gives slots.

The edge reads the tables of nodes and slots, and what follows in the metadata log, and says so with `SlotsSeen`. Its
parts are handled in this order:

1. Records of the metadata log are applied. The controller writes them, and every node folds them. Each node creates and
   deletes the logs of its own slots when it learns of their topics.
2. Leaders and leader epochs follow the owners of the slots.
3. Slots that this node has gained: their partitions get their logs, and their shards of groups the records of theirs.
   The turn proves that the node owns them (`TakeSlots`), and nothing of them is said before it is durable.
4. Slots that another node wants: what waits for them is answered with 6 or 16, and the turn hands them over
   (`GiveSlots`). What this turn has decided for them before is the last that this node writes there.

Metadata is read after the logs of gained slots, so it has every topic that the former owner had logs for. A log of
no topic is one that it had no time to delete.

The node that gains the controller's slot in an empty database founds the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kohort.broker.sharing.founding import found_secret, found_topics
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import METADATA_LOG, OFFSETS_TOPIC, Topic, parsed
from kohort.broker.turn import SlotsSeen
from kohort.coordinator.events import GroupConfigsChanged, Loaded, Record, Unloaded
from kohort.storage.protocol import DeleteLog, GiveSlots, TakeSlots
from kohort.storage.slots import CONTROLLER_SLOT, slot_of
from kohort.wire.schemas.metadata_records import TopicValue


def see_slots(state: BrokerState, seen: SlotsSeen) -> None:
    slots = state.slots
    assert slots is not None
    own = state.node_by_id[slots.node]
    nodes = seen.nodes if any(node.id == own.id for node in seen.nodes) else (*seen.nodes, own)
    if nodes != state.nodes:
        state.set_nodes(nodes)
    if seen.producer_ids:
        state.topics.producer_ids.append(seen.producer_ids)
    if seen.metadata and not slots.controls:
        _follow(state, seen.metadata)
        # The records that this node has read may be lost in a failover of the database. This commit is later than they
        # are, so its success proves that they are durable.
        state.turn.operations.append(TakeSlots(METADATA_LOG, ()))
    if seen.metadata_end and not slots.controls:
        state.topics.metadata.follow(max(seen.metadata_end, state.topics.metadata.end_offset))
    for log, start, end in seen.ends:
        state.topics.learn_end(log, start, end)
    _add_shards(state)
    is_new = slots.put(seen.owners, seen.epochs)
    slots.held.update(seen.gained)
    if is_new or seen.gained:
        _move_leaders(state)
    if seen.gained:
        _take(state, seen)
    wanted = {slot: node for slot, node in seen.wanted.items() if slot in slots.held and node in state.node_by_id}
    if wanted:
        _give(state, wanted)


# -- metadata


def _follow(state: BrokerState, records: Iterable[Record]) -> None:
    topics, catalog = state.topics, state.catalog
    level = state.log_level
    for record in records:
        key, value = parsed(record)
        if key.kind == "topic":
            former = catalog.topics.get(key.name)
            if former is not None and (value is None or value.topic_id != former.topic_id):
                topics.learn_deletion(former, record if value is None else None)
                state.groups.topics_deleted((former.name,))
            if isinstance(value, TopicValue):
                topics.learn_topic(key.name, record)
        elif key.kind == "broker":
            topics.learn_broker(record)
        else:
            catalog.apply(record)
            if key.kind == "group" and state.shards:
                configs = catalog.group_configs.get(key.name, {})
                state.ask(state.shard_of(key.name), GroupConfigsChanged(key.name, configs))
    if state.log_level != level:
        state.turn.log_level = state.log_level


def _add_shards(state: BrokerState) -> None:
    """Of all groups. Those of other nodes have no state, and refuse requests with 16."""
    offsets = state.topic(OFFSETS_TOPIC)
    if offsets is None or state.shards:
        return
    for index in range(len(offsets.partitions)):
        state.groups.add(index)
        state.ask(index, Unloaded())


# -- leaders


def _move_leaders(state: BrokerState) -> None:
    """Fetches that wait for a partition of another leader are answered."""
    slots = state.slots
    assert slots is not None
    moved = [topic.log_key(index) for topic, indexes in state.catalog.follow_slots() for index in indexes]
    state.fetch_waits.wake(moved)


# -- slots


def _take(state: BrokerState, seen: SlotsSeen) -> None:
    state.turn.operations.append(TakeSlots(METADATA_LOG, seen.gained))
    infos = {info.key: info for info in seen.logs}
    if CONTROLLER_SLOT in seen.gained:
        metadata = infos.pop(METADATA_LOG, None)
        if metadata is None:
            found_topics(state)
            _add_shards(state)
        else:
            state.topics.resume(metadata)
        found_secret(state)
        if metadata is None:
            _load_shards(state, _shards_in(state, seen.gained), seen)
            return
    for topic, index in _partitions_in(state, seen.gained):
        state.topics.put_partition(topic, index, infos.pop(topic.log_key(index), None))
    # Logs of deleted topics, which the former owner had no time to delete.
    state.turn.operations.extend(DeleteLog(key) for key in sorted(infos))
    _load_shards(state, _shards_in(state, seen.gained), seen)


def _load_shards(state: BrokerState, shards: Iterable[int], seen: SlotsSeen) -> None:
    for index in shards:
        shard = state.groups.replace(index)
        log = state.topics.partition_named(shard.log).log
        for record, timestamp in seen.replays.get(log, ()):
            shard.apply(record, timestamp)
        state.ask(index, Loaded())
    gone = {name for index in shards for name in state.shards[index].hard.topics} - state.catalog.topics.keys()
    state.groups.topics_deleted(tuple(sorted(gone)))


def _give(state: BrokerState, wanted: Mapping[int, int]) -> None:
    slots = state.slots
    assert slots is not None
    shards, partitions = _shards_in(state, wanted), _partitions_in(state, wanted)
    for index in shards:
        state.ask(index, Unloaded())
        state.machines.flush(index)
    if CONTROLLER_SLOT in wanted:
        state.topics.append_decided()
    for slot, node in wanted.items():
        slots.give(slot, node)
    _move_leaders(state)
    for index in shards:
        state.groups.replace(index)
        state.ask(index, Unloaded())
    for topic, index in partitions:
        state.topics.put_partition(topic, index, None)
    state.turn.operations.append(GiveSlots(METADATA_LOG, tuple(wanted.items())))


def _partitions_in(state: BrokerState, slots: Collection[int]) -> list[tuple[Topic, int]]:
    return [
        (topic, index)
        for topic in state.catalog.topics.values()
        for index in range(len(topic.partitions))
        if slot_of(topic.log_key(index)) in slots
    ]


def _shards_in(state: BrokerState, slots: Collection[int]) -> list[int]:
    """Of groups. There may be no topic yet."""
    return [index for topic, index in _partitions_in(state, slots) if topic.name == OFFSETS_TOPIC]
