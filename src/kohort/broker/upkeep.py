"""Periodic work: retention and compaction of logs, expiry of committed offsets, the offsets and logs of deleted topics,
markers of transactions that end over several turns, dead letters of share groups, points of the lag in seconds and
windows of commits.

The work is done in bounded pieces, one a turn, so that no client waits long. A round visits every log once. While a
round or a compaction is under way, the broker is busy: it gets the next turn at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kohort.broker.logs import retention
from kohort.broker.logs.compaction import Compaction
from kohort.broker.logs.dirty_part import KEEPS_NOTHING, DirtyPart, Kept, even_share
from kohort.broker.logs.partition import Partition
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import OFFSETS_TOPIC, SHARES_TOPIC
from kohort.broker.turn import Complaint, Millis
from kohort.broker.waits.reads import FailedRead
from kohort.coordinator.events import ExpireOffsets
from kohort.storage.protocol import DamagedBatch, LogKey

if TYPE_CHECKING:
    from kohort.broker.shares.dead_letters import DeadLetters

LOGS_A_TURN = 32
"""How many logs one turn visits."""
CLEANER_INTERVAL_MS = 15_000
"""How often compacted logs are visited (Kafka's log.cleaner.backoff.ms), so that replays stay short."""
SHARES_INTERVAL_MS = 2_000
"""How often a log of share groups' state is looked at."""
COMPACTED_BYTES_A_TURN = 128 * 1024
"""Bytes that a compaction reads in one turn: some five milliseconds of decoding if the batches are small."""
IN_MEMORY_SHARE = 8
"""Where storage is in memory, the history of groups has this fraction of its limit: small batches take three times as
much there as their bytes."""


class Upkeep:
    def __init__(self, state: BrokerState, now: Millis) -> None:
        self._state = state
        self._retention_interval_ms = state.config.log_retention_check_interval_ms
        self._cleaner_interval_ms = min(CLEANER_INTERVAL_MS, self._retention_interval_ms)
        self._retention_due_ms = now + self._retention_interval_ms
        self._cleaner_due_ms = now + self._cleaner_interval_ms
        self._shares_due_ms = now + SHARES_INTERVAL_MS
        self._dead_letters: DeadLetters | None = None
        self._offsets_due_ms = now + state.config.offsets_retention_check_interval_ms
        self._expiring: deque[int] = deque()
        """The shards whose offsets are looked through: one in each turn."""
        self._logs: deque[LogKey] = deque()
        """The logs that the round under way has not visited yet."""
        self._compaction: Compaction | None = None
        self._compacting: Partition | None = None
        self._dirty: dict[LogKey, DirtyPart] = {}
        """The part of each log that is not compacted yet. Not durable: after a restart the first pass reads the whole
        log."""
        self._kept = KEEPS_NOTHING
        """What a partition of `__consumer_offsets` keeps as it was written."""

    @property
    def busy(self) -> bool:
        state = self._state
        waits = self._compaction is not None and self._compaction.waits  # for a read, as do the logs behind it
        if self._expiring or ((self._compaction is not None or self._logs) and not waits):
            return True
        if state.shares.prunes or state.shares.releases or (self._dead_letters is not None and self._dead_letters.busy):
            return True
        return state.transactions.endings.busy or state.groups.deletes_offsets or state.topics.deletes_logs

    def next_deadline(self) -> Millis:
        lag = min(self._state.lag_times.due_ms, self._state.commit_windows.due_ms)
        shares = self._shares_due_ms if self._state.shares.shards else lag
        return min(self._cleaner_due_ms, self._retention_due_ms, self._offsets_due_ms, lag, shares)

    def step(self, now: Millis) -> None:
        state = self._state
        state.transactions.endings.step()
        if now >= state.lag_times.due_ms:
            state.lag_times.sample(now)
        if now >= state.commit_windows.due_ms:
            state.commit_windows.sample(now)
        if state.groups.deletes_offsets:
            state.groups.delete_offsets()
        if state.topics.spare:
            state.topics.delete_spare_logs()
        state.shares.release()
        if state.shares.awaiting:
            self._write_dead_letters()
        if now >= self._shares_due_ms or state.shares.prunes:
            self._shares_due_ms = now + SHARES_INTERVAL_MS
            state.shares.prune(now)
        if now >= self._offsets_due_ms:
            self._offsets_due_ms = now + state.config.offsets_retention_check_interval_ms
            self._expiring.extend(shard for shard in range(len(state.shards)) if shard not in self._expiring)
        if self._expiring:
            state.ask(self._expiring[0], ExpireOffsets())
            if not state.shards[self._expiring[0]].expires_more:
                self._expiring.popleft()
        if now >= self._cleaner_due_ms or now >= self._retention_due_ms:
            self._begin_round(now)
        if self._compaction is not None:
            self._compact(self._compaction)
        for _ in range(min(LOGS_A_TURN, len(self._logs))):
            if self._compaction is not None:
                break
            self._look_after(self._logs.popleft())

    def _write_dead_letters(self) -> None:
        if self._dead_letters is None:
            from kohort.broker.shares.dead_letters import DeadLetters  # most servers never write any

            self._dead_letters = DeadLetters(self._state)
        self._dead_letters.step()

    def _begin_round(self, now: Millis) -> None:
        everything = now >= self._retention_due_ms
        self._cleaner_due_ms = now + self._cleaner_interval_ms
        if everything:
            self._retention_due_ms = now + self._retention_interval_ms
        if self._logs:
            return  # The last round is still under way.
        partitions = self._state.topics.all_partitions()
        self._logs.extend(partition.log for partition in partitions if everything or partition.settings.compact)
        if everything:
            present = set(self._logs)
            self._dirty = {log: dirty for log, dirty in self._dirty.items() if log in present}
        self._kept = self._share_history(partitions)

    def _share_history(self, partitions: Sequence[Partition]) -> Kept:
        """Each partition of `__consumer_offsets` keeps as much, because a start reads what all of them keep."""
        config, offsets = self._state.config, self._state.topic(OFFSETS_TOPIC)
        total = config.offsets_topic_history_bytes // (IN_MEMORY_SHARE if self._state.tails is None else 1)
        if offsets is None or not total:
            return KEEPS_NOTHING
        sizes = (partition.size for partition in partitions if partition.log.topic_id == offsets.topic_id)
        return Kept(even_share(sizes, total), config.offsets_topic_history_ms)

    def _look_after(self, log: LogKey) -> None:
        partition = self._state.topics.partition_of(log)
        if partition is None or not self._state.topics.holds(log):
            return
        self._retain(partition)
        if self._state.config.log_cleaner_enable and partition.settings.compact:
            dirty = self._dirty.setdefault(log, DirtyPart(0))
            reads = self._state.reads if self._state.tails is not None else None
            offsets = self._state.topic(OFFSETS_TOPIC)
            kept = self._kept if offsets is not None and log.topic_id == offsets.topic_id else KEEPS_NOTHING
            self._compaction = dirty.due(partition, self._state.storage, self._state.now, reads, kept)
            self._compacting = partition
            if self._compaction is None and not dirty.all_counted:
                self._logs.append(log)

    def _retain(self, partition: Partition) -> None:
        settings = partition.settings
        if not settings.delete or partition.high_watermark == partition.start_offset:
            return
        shares = self._state.topic(SHARES_TOPIC)
        if shares is not None and shares.topic_id == partition.log.topic_id:
            return  # whatever its configs say: only `prune` knows what may go
        batches = self._state.storage.batches(partition.log, partition.start_offset)
        kept = retention.retained(batches, partition.start_offset, partition.size, settings, self._state.now)
        if kept.start_offset > partition.start_offset:
            self._state.turn.trim(partition, kept.start_offset)
        if not kept.complete:
            self._logs.append(partition.log)

    def _compact(self, under_way: Compaction) -> None:
        state, partition = self._state, self._compacting
        assert partition is not None
        if state.topics.partition_of(partition.log) is not partition:
            self._compaction = None  # Its topic was deleted.
            under_way.end()
            return
        try:
            replaced = under_way.step(state.now, state.catalog.config.producer_id_expiration_ms, COMPACTED_BYTES_A_TURN)
        except FailedRead as failure:
            self._complain("failed read", partition, f"cannot be compacted now: {failure}")
            self._compaction = None  # The next round tries again.
            return
        except DamagedBatch as damage:
            # The batches replaced so far are complete. The log is visited again when more is written to it.
            self._complain("damaged data", partition, f"cannot be compacted: {damage}")
            self._dirty[partition.log] = DirtyPart(partition.high_watermark)
            self._compaction = None
            return
        state.turn.operations.extend(replaced)
        for replace in replaced:
            state.reads.replaced(replace.log, replace.first, replace.last)
        if under_way.done:
            self._dirty[partition.log] = self._dirty[partition.log].after(under_way)
            self._compaction = None

    def _complain(self, kind: Literal["damaged data", "failed read"], partition: Partition, what: str) -> None:
        topic = self._state.catalog.by_id.get(partition.log.topic_id)
        name = topic.name if topic is not None else "the metadata log"
        self._state.turn.complain(Complaint(kind, f"{name}-{partition.log.partition} {what}"))
