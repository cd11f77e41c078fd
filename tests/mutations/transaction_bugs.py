"""Known bugs of transactions, on the broker's side; test_mutations.py plants them.

Most are failures that other systems had: the comments name the reports, and docs/transaction-failures.md has them all.
One cannot be planted as it was: KAFKA-14884, a marker between the check of a batch and its append. Here both are in one
step, which is not interrupted. What is left of it is a request that takes several turns.
"""

from __future__ import annotations

from planting import bug

SHARD, TRANSACTION = "coordinator/transactions/shard.py", "coordinator/transactions/transaction.py"
RECORDS = "coordinator/transactions/records.py"
PENDING, TXN_OFFSETS = "coordinator/offsets/pending.py", "coordinator/offsets/transactional.py"
OFFSETS, HARD = "coordinator/offsets/offsets.py", "coordinator/hard_state.py"
ENDINGS, GROUPS, MACHINES = "broker/transactions/endings.py", "broker/group_shards.py", "broker/machines.py"
LOG, PRODUCERS, PARTITION = "broker/logs/transactions.py", "broker/logs/producers.py", "broker/logs/partition.py"
COMPACTION, NEWEST = "broker/logs/compaction.py", "broker/logs/newest_records.py"
PRODUCE, COMMIT = "broker/handlers/transactional_produce.py", "broker/handlers/transactional_offsets.py"
FETCH, COMPRESSION = "broker/handlers/fetch.py", "wire/compression.py"

SIMULATOR = "simulator of transactor"
SHARD_TEST = "tests/coordinator/test_transactions.py::"
PENDING_TEST = "tests/coordinator/test_pending_offsets.py::"
PRODUCERS_TEST = "tests/broker/transactions/test_producers.py::"
ENDINGS_TEST = "tests/broker/transactions/test_endings.py::"
OFFSETS_TEST = "tests/broker/transactions/test_offsets_in_transactions.py::"
REPLAY_TEST = "tests/broker/transactions/test_offsets_replay.py::"
READ_TEST = "tests/broker/transactions/test_read_committed.py::"
PARTITION_TEST = "tests/broker/logs/test_partition_transactions.py::"
PREPARATION_TEST = "tests/broker/logs/test_preparation.py::"
LOG_TEST = "tests/broker/logs/test_transactions.py::"
COMPACTION_TEST = "tests/broker/logs/test_compaction_transactions.py::"

FORGET_OPEN = (
    "is_open = self._producers.transactions.open\n"
    "        for producer_id in [each for each, first in is_open.items() if first < offset]:\n"
    "            del is_open[producer_id]"
)

TRANSACTION_BUGS = {
    "the pending offsets of each shard are counted by themselves": bug(
        (f"{OFFSETS_TEST}test_pending_offsets_are_counted_over_all_groups_and_at_a_start",),
        (GROUPS, "        shard.hard.pending.counts = self._pending\n", ""),
    ),
    # -- one transaction after the other
    # KAFKA-17754, Jepsen's report on Bufstream
    "a delayed end ends the next transaction of the same epoch": bug(
        (
            f"{SHARD_TEST}test_a_plain_end_on_an_older_connection_than_the_transaction_is_refused",
            f"{PRODUCERS_TEST}test_a_delayed_end_from_an_older_connection_ends_no_later_transaction",
        ),
        (
            SHARD,
            "            if self._is_late(event):\n                return",
            "            if False:\n                return",
        ),
    ),
    "a delayed addition begins a transaction that nobody ends": bug(
        (f"{SHARD_TEST}test_a_plain_addition_on_an_older_connection_than_another_is_refused",),
        (
            SHARD,
            "            if self._is_late(event):\n                error",
            "            if False:\n                error",
        ),
    ),
    "delayed offsets replace those of the next transaction of the same epoch": bug(
        (f"{OFFSETS_TEST}test_tx38_without_new_epochs_a_late_commit_on_an_older_connection_is_fenced",),
        (COMMIT, "ErrorCode.INVALID_PRODUCER_EPOCH if is_late else ErrorCode.NONE", "ErrorCode.NONE"),
    ),
    # redpanda 1384
    "news of a former transaction's markers completes the present one": bug(
        (f"{SHARD_TEST}test_late_news_of_markers_completes_nothing",),
        (SHARD, "if (transaction.producer_id, transaction.epoch) != (event.producer_id, event.epoch):", "if False:"),
    ),
    "a marker of the records' own epoch ends a transaction that gets a new epoch": bug(
        (f"{PARTITION_TEST}test_epochs_of_markers",),
        (PRODUCERS, "if marker.epoch < producer.epoch + due:", "if marker.epoch < producer.epoch:"),
    ),
    # KAFKA-12671, KAFKA-14402
    "a late batch begins a transaction that nobody ends": bug(
        (f"{PRODUCERS_TEST}test_tx25_a_partition_that_was_not_added",),
        (PRODUCE, "elif self._state.config.transaction_partition_verification_enable:", "elif False:"),
    ),
    "late offsets begin a transaction that nobody ends": bug(
        (f"{OFFSETS_TEST}test_tx37_the_groups_partition_must_be_in_the_transaction",),
        (
            COMMIT,
            "asks = version >= ADDS or state.config.transaction_partition_verification_enable",
            "asks = version >= ADDS",
        ),
    ),
    # KAFKA-14884
    "a produce of several turns writes to a transaction that has ended meanwhile": bug(
        (f"{PRODUCERS_TEST}test_tx25_a_request_of_several_turns_asks_again_in_each",),
        (PRODUCE, "        self._added = None\n\n    def _ask", "        pass\n\n    def _ask"),
    ),
    # KAFKA-18202
    "the second batch of a transaction is accepted without the first": bug(
        (
            f"{PARTITION_TEST}test_an_unknown_producer_begins_with_zero_if_each_transaction_has_an_epoch",
            f"{PRODUCERS_TEST}test_tx26_a_new_transaction_begins_with_sequence_0",
        ),
        (
            PRODUCERS,
            "refused = new_epochs and header.base_sequence != 0",
            "refused = False and header.base_sequence != 0",
        ),
    ),
    # KAFKA-15653. There it was a thread's buffer; here requests that take several turns alternate.
    "a batch is decompressed into the pieces of another request": bug(
        (f"{PREPARATION_TEST}test_requests_that_are_prepared_side_by_side_share_nothing",),
        (
            COMPRESSION,
            "    pieces = []\n    room = max_bytes\n",
            "    pieces = vars(zlib).setdefault('pieces', [])\n    pieces.clear()\n    room = max_bytes\n",
        ),
    ),
    "a batch is compressed into the pieces of another request": bug(
        (f"{PREPARATION_TEST}test_requests_that_are_prepared_side_by_side_share_nothing",),
        (
            COMPRESSION,
            "    pieces = [_XERIAL_HEADER] if codec == SNAPPY else []\n",
            "    pieces = vars(zlib).setdefault('pieces', [])\n"
            "    pieces[:] = [_XERIAL_HEADER] if codec == SNAPPY else []\n",
        ),
    ),
    # -- fencing
    "an init keeps the epoch": bug(
        (f"{SHARD_TEST}test_a_new_id_begins_at_epoch_0_and_each_init_raises_it", SIMULATOR),
        (
            SHARD,
            "initialised(event.timeout_ms, now, transaction.epoch + 1, last_epoch)",
            "initialised(event.timeout_ms, now, transaction.epoch, last_epoch)",
        ),
    ),
    "a partition accepts records of an older epoch": bug(
        (f"{PARTITION_TEST}test_what_a_producer_may_append",),
        (PRODUCERS, "if header.producer_epoch < producer.epoch:", "if False:"),
    ),
    "the coordinator does not compare epochs": bug(
        (f"{SHARD_TEST}test_adding_as_another_producer_is_refused", SIMULATOR),
        (SHARD, "return NONE if transaction.epoch == event.epoch else ErrorCode.PRODUCER_FENCED", "return NONE"),
    ),
    "offsets of an older epoch are accepted after the end of their transaction": bug(
        (f"{OFFSETS_TEST}test_an_epoch_that_the_log_has_passed_is_fenced_although_the_coordinator_knows_nothing",),
        (COMMIT, "if error := partition.check_epoch(producer_id, epoch, state.now):", "if error := ErrorCode.NONE:"),
    ),
    # FLINK-40626, librdkafka 3575
    "an init with any producer id and epoch is served": bug(
        (f"{SHARD_TEST}test_an_init_with_a_foreign_producer_id_is_fenced",),
        (SHARD, "and not self._may_init(transaction, event):", "and False:"),
    ),
    "a zombie's init aborts the transaction of its successor": bug(
        (
            f"{SHARD_TEST}test_a_zombies_init_does_not_abort_the_open_transaction",
            f"{PRODUCERS_TEST}test_tx9_a_zombie_does_not_abort_the_transaction_of_its_successor",
        ),
        (SHARD, "if not self._settings.zombie_init and transaction.state", "if transaction.state"),
    ),
    # KAFKA-9144
    "a producer with an open transaction is forgotten when it is silent": bug(
        (f"{PARTITION_TEST}test_a_producer_with_an_open_transaction_is_not_forgotten",),
        (
            PRODUCERS,
            "return now - producer.last_seen_ms >= self.expiration_ms and producer_id not in self.transactions.open",
            "return now - producer.last_seen_ms >= self.expiration_ms",
        ),
    ),
    "a marker does not keep its producer from being forgotten": bug(
        (f"{PARTITION_TEST}test_a_marker_keeps_a_producer_with_old_records",),
        (
            PRODUCERS,
            "        producer = self._renewed(producer_id, epoch, now)\n        producer.last_timestamp = now\n",
            "        former = self._known.get(producer_id)\n"
            "        producer = self._renewed(producer_id, epoch, former.last_seen_ms if former else now)\n"
            "        producer.last_timestamp = now\n",
        ),
    ),
    "a marker of an older coordinator is accepted": bug(
        (f"{PARTITION_TEST}test_coordinator_epochs_of_markers",),
        (PRODUCERS, "if marker.coordinator_epoch < producer.coordinator_epoch:", "if False:"),
    ),
    "a plain batch is appended in the middle of its producer's transaction": bug(
        (f"{PRODUCERS_TEST}test_tx27_plain_batches_in_the_middle_of_a_transaction",),
        (PRODUCERS, "and header.producer_id in is_open and not header.is_transactional:", "and False:"),
    ),
    # -- answers that were lost
    # KAFKA-20357
    "a repeated init raises the epoch again": bug(
        (f"{SHARD_TEST}test_an_init_with_the_present_epoch_raises_it_and_may_be_repeated",),
        (SHARD, "if is_named and event.epoch == transaction.last_epoch:", "if False:"),
    ),
    "the epoch before the present one is lost at a restart": bug(
        (
            f"{SHARD_TEST}test_an_init_with_the_present_epoch_raises_it_and_may_be_repeated",
            f"{SHARD_TEST}test_a_repeated_init_at_the_last_epoch_gives_the_same_new_producer_id",
        ),
        (RECORDS, "last_producer_epoch=transaction.last_epoch", "last_producer_epoch=-1"),
    ),
    "a repeated end is fenced": bug(
        (f"{SHARD_TEST}test_each_end_gives_the_next_epoch",),
        (SHARD, "if _is_repeated_end(transaction, event):", "if False:"),
    ),
    "a repeated end gets success for the other outcome": bug(
        (f"{SHARD_TEST}test_the_other_outcome_is_refused_after_the_end", SIMULATOR),
        (SHARD, "        if transaction.state is ended:\n", "        if True:\n"),
    ),
    "a plain commit is answered with success after an abort": bug(
        (f"{SHARD_TEST}test_a_plain_end_keeps_the_epoch_and_says_no_producer",),
        (
            SHARD,
            "return _refused(event, NONE if transaction.state is ended else ErrorCode.INVALID_TXN_STATE)",
            "return _refused(event, NONE)",
        ),
    ),
    # KAFKA-20785
    "a commit that lost to a timeout ends its producer": bug(
        (f"{SHARD_TEST}test_a_commit_that_lost_to_a_timeout_is_fenced_and_an_abort_succeeds",),
        (SHARD, "is State.COMPLETE_ABORT and not self._settings.lost_to_timeout", "is State.COMPLETE_ABORT"),
    ),
    # KAFKA-18575
    "an empty abort keeps the epoch": bug(
        (f"{SHARD_TEST}test_an_empty_commit_is_refused_and_an_empty_abort_raises_the_epoch",),
        (
            TRANSACTION,
            "epoch=min(self.epoch + 1, LAST_EPOCH + 1),",
            "epoch=min(self.epoch + bool(self.places), LAST_EPOCH + 1),",
        ),
    ),
    # -- the end of the epochs: KAFKA-18660, KAFKA-20090, KAFKA-20310
    "an init gives the epoch of markers to a producer": bug(
        (f"{SHARD_TEST}test_at_the_last_epoch_an_init_gives_a_new_producer_id",),
        (SHARD, "        if transaction.epoch >= LAST_EPOCH:\n", "        if transaction.epoch > LAST_EPOCH:\n"),
    ),
    "an end gives the epoch of markers to a producer": bug(
        (f"{SHARD_TEST}test_the_last_epoch_ends_with_a_new_producer_id",),
        (SHARD, "if transaction.epoch >= LAST_EPOCH else -1", "if transaction.epoch > LAST_EPOCH else -1"),
    ),
    "the next producer id is lost at a restart": bug(
        (f"{SHARD_TEST}test_the_last_epoch_ends_with_a_new_producer_id",),
        (RECORDS, "next_producer_id=transaction.next_id", "next_producer_id=-1"),
    ),
    "the former producer id is lost at a restart": bug(
        (f"{SHARD_TEST}test_the_last_epoch_ends_with_a_new_producer_id",),
        (RECORDS, "previous_producer_id=transaction.previous_id", "previous_producer_id=-1"),
    ),
    "a repeated marker of the last epoch is refused": bug(
        (f"{PARTITION_TEST}test_the_last_epoch_has_no_higher_one",),
        (PRODUCERS, "and is_open and marker.epoch < LAST_EPOCH", "and is_open"),
    ),
    # -- decision, markers, completion: KAFKA-9777, KAFKA-10080, KAFKA-16352, KAFKA-19999
    "a restart writes no markers for a transaction that was decided": bug(
        (f"{SHARD_TEST}test_a_restart_writes_the_markers_of_a_decided_transaction_again", SIMULATOR),
        (
            SHARD,
            'return Effects(endings=tuple(_ending(name, each, "loaded") for name, each in prepared))',
            "return Effects()",
        ),
    ),
    "markers are written before the decision is durable": bug(
        (f"{ENDINGS_TEST}test_the_forced_path_decides_first",),
        (ENDINGS, "if under_way.turn >= self._number_of_turn:", "if False:"),
    ),
    "a transaction is complete before its last marker": bug(
        (f"{ENDINGS_TEST}test_a_large_transaction_ends_over_several_turns",),
        (
            ENDINGS,
            "if under_way.written == len(under_way.ending.places):",
            "if under_way.written + SHARE >= len(under_way.ending.places):",
        ),
    ),
    "a transaction that ends in one turn is never complete": bug(
        (f"{ENDINGS_TEST}test_a_small_transaction_ends_in_one_turn", SIMULATOR),
        (ENDINGS, "self._complete(number, ending)\n        else:", "pass\n        else:"),
    ),
    "a repeated marker is refused": bug(
        (f"{PARTITION_TEST}test_epochs_of_markers",),
        (PRODUCERS, "due = version >= NEW_EPOCHS and is_open and", "due = version >= NEW_EPOCHS and"),
    ),
    "activity prolongs a transaction": bug(
        (f"{SHARD_TEST}test_activity_does_not_prolong_a_transaction",),
        (
            SHARD,
            "min(transaction.started, now) + transaction.timeout_ms",
            "min(transaction.updated, now) + transaction.timeout_ms",
        ),
    ),
    "a producer is not fenced by the timeout of its transaction": bug(
        (f"{SHARD_TEST}test_a_commit_that_lost_to_a_timeout_is_fenced_and_an_abort_succeeds", SIMULATOR),
        (
            SHARD,
            "                transaction = self._fenced(transaction, now)\n",
            "                transaction = transaction.decided(False, now)\n",
        ),
    ),
    # -- readers: Jepsen's report on Redpanda 21.10.1, redpanda 3036 and 7544
    "readers of committed records pass an open transaction": bug(
        (f"{READ_TEST}test_tx34_nothing_at_and_after_the_last_stable_offset", SIMULATOR),
        (PARTITION, "end = self.last_stable_offset if committed else self.high_watermark", "end = self.high_watermark"),
    ),
    "the last stable offset is that of the newest open transaction": bug(
        (f"{LOG_TEST}test_readers_stop_at_the_oldest_open_transaction", SIMULATOR),
        (LOG, "return next(iter(self.open.items()), None)", "return next(reversed(self.open.items()), None)"),
        (LOG, "first = next(iter(self.open.values()), end)", "first = next(reversed(self.open.values()), end)"),
    ),
    "open transactions are forgotten at a restart": bug(
        ("tests/broker/logs/test_transactions_rebuilt.py::TestPartitions::runTest", SIMULATOR),
        (PRODUCERS, "Transactions.resumed(self._stored_open(), aborted)", "Transactions.resumed({}, aborted)"),
    ),
    "the last stable offset moves before the marker is durable": bug(
        (f"{READ_TEST}test_a_marker_of_the_turn_does_not_show_before_its_sync",),
        (
            PARTITION,
            "        unstable_from = self._unstable_from\n",
            "        self._note_unstable()\n        unstable_from = self._unstable_from\n",
        ),
    ),
    "the last stable offset stays when a transaction ends": bug(
        (f"{PARTITION_TEST}test_readers_of_committed_records_end_before_an_open_transaction", SIMULATOR),
        (
            PARTITION,
            "        if self._unstable_from != _NOT_READ:\n            self._note_unstable()",
            "        if self._producers.has_open:\n            self._note_unstable()",
        ),
    ),
    "a fetch from the middle of an aborted transaction does not list it": bug(
        (f"{READ_TEST}test_tx33_the_aborted_transactions_of_the_returned_batches", SIMULATOR),
        (
            LOG,
            'begin = bisect_left(self.aborted, first, key=attrgetter("marker_offset"))',
            'begin = bisect_left(self.aborted, first, key=attrgetter("first_offset"))',
        ),
    ),
    "the search for aborted transactions ends too early": bug(
        (f"{LOG_TEST}test_the_aborted_are_those_that_a_search_of_the_log_finds",),
        (LOG, "            if aborted.stable_offset >= end:", "            if aborted.marker_offset >= end:"),
    ),
    # librdkafka 3369
    "an abort without records is listed": bug(
        (f"{LOG_TEST}test_a_marker_without_records_aborts_nothing",),
        (LOG, "if first_offset >= 0 and not committed:", "if not committed:"),
    ),
    "a deletion of records cuts the index of aborted transactions at their first records": bug(
        (f"{LOG_TEST}test_the_aborted_are_those_that_a_search_of_the_log_finds",),
        (
            LOG,
            'del self.aborted[: bisect_left(self.aborted, start_offset, key=attrgetter("marker_offset"))]',
            "self.aborted = [one for one in self.aborted if one.first_offset >= start_offset]",
        ),
    ),
    "a deletion of records ends open transactions": bug(
        (f"{PARTITION_TEST}test_a_trim_may_pass_an_open_transaction",),
        (PARTITION, ".transactions.trimmed(offset)", ".transactions.trimmed(offset)\n        " + FORGET_OPEN),
    ),
    # -- compaction
    "compaction drops a marker before its records": bug(
        (f"{COMPACTION_TEST}test_a_marker_stays_while_a_batch_of_its_transaction_does",),
        (COMPACTION, "if rules.decided.had_data(batch) or records is None:", "if records is None:"),
    ),
    "compaction lets an aborted record replace a committed one": bug(
        (f"{COMPACTION_TEST}test_aborted_records_go_and_hide_nothing",),
        (COMPACTION, "is_control and not self._decided.is_aborted(batch):", "is_control:"),
    ),
    "compaction passes an open transaction": bug(
        (f"{COMPACTION_TEST}test_a_pass_ends_before_an_open_transaction",),
        (
            "broker/logs/dirty_part.py",
            "settings.min_compaction_lag_ms, partition.last_stable_offset, kept)",
            "settings.min_compaction_lag_ms, partition.high_watermark, kept)",
        ),
    ),
    "compaction forgets the epoch of a producer that may return": bug(
        (f"{COMPACTION_TEST}test_a_marker_of_nothing_stays_for_the_epoch_of_its_producer",),
        (
            COMPACTION,
            "if rules.now < header.base_timestamp or rules.is_last_of_producer(batch):",
            "if rules.now < header.base_timestamp:",
        ),
    ),
    # -- offsets: KAFKA-16371, KAFKA-17507, redpanda 31483, 5543, 9571
    "a fetch of stable offsets returns the offset before a pending one": bug(
        (f"{OFFSETS_TEST}test_tx54_what_is_pending_is_unstable_until_the_marker",),
        (OFFSETS, "if stable and self._hard.pending.is_pending(request.group_id, place):", "if False:"),
    ),
    "a marker is acknowledged before its offsets are committed": bug(
        (f"{OFFSETS_TEST}test_offsets_are_committed_with_the_transaction_in_every_version", SIMULATOR),
        (GROUPS, "            self.shards[index].apply(marker, self._turn.now)\n", "            pass\n"),
    ),
    "a marker is written before offsets that were committed earlier": bug(
        (f"{OFFSETS_TEST}test_a_turn_writes_batches_and_markers_in_the_order_of_its_requests",),
        (
            GROUPS,
            "partition = self.machines.flush(index)\n        appended = self._turn.append_marker",
            "log = self.shards[index].log\n        partition = self._topics.partition_named(log)\n"
            "        appended = self._turn.append_marker",
        ),
    ),
    "an offset with too long metadata stays pending": bug(
        (f"{OFFSETS_TEST}test_tx51_metadata_that_is_too_long_leaves_nothing_pending",),
        (TXN_OFFSETS, "                if not refused:\n", "                if True:\n"),
    ),
    "an abort commits the pending offsets": bug(
        (f"{PENDING_TEST}test_any_history", SIMULATOR),
        (PENDING, "if committed and offset.at > awaited.superseded:", "if offset.at > awaited.superseded:"),
    ),
    "the place of the marker decides about an offset": bug(
        (
            f"{OFFSETS_TEST}test_tx52_the_place_of_the_record_decides_not_that_of_the_marker",
            f"{PENDING_TEST}test_any_history",
        ),
        (PENDING, "if committed and offset.at > awaited.superseded:", "if committed:"),
    ),
    "a deleted offset is committed again by a marker": bug(
        (f"{OFFSETS_TEST}test_tx55_a_tombstone_takes_what_is_pending",),
        (HARD, "        self.pending.drop(key.group, (key.topic, key.partition))\n", ""),
    ),
    "a deleted offset is committed again by a marker, after a restart": bug(
        (f"{REPLAY_TEST}test_live_is_replay_at_every_prefix",),
        (NEWEST, "if open_of and not header.is_transactional:", "if False:"),
    ),
    "an aborted offset hides a committed one at a start": bug(
        (
            f"{OFFSETS_TEST}test_tx59_an_aborted_or_open_offset_hides_no_committed_one_at_a_start",
            f"{REPLAY_TEST}test_live_is_replay_at_every_prefix",
        ),
        (NEWEST, "    if not marker.committed:\n        return False\n", ""),
    ),
    "at a start the place of the marker decides about an offset": bug(
        (f"{REPLAY_TEST}test_live_is_replay_at_every_prefix",),
        (NEWEST, "if known is None or known[2] < found[2]:", "if True:"),
    ),
    "an offset expires while another one is pending": bug(
        (f"{OFFSETS_TEST}test_tx56_pending_offsets_do_not_expire_and_keep_their_group",),
        (OFFSETS, "(place for place in found if place not in pending)", "iter(found)"),
    ),
    "the owner of a partition is not fenced in a transaction": bug(
        (f"{OFFSETS_TEST}test_ownership_fences_the_whole_request_and_never_with_110",),
        (TXN_OFFSETS, "if any(fence((topic_id, asked.partition_index)) for asked in topic.partitions):", "if False:"),
    ),
}
