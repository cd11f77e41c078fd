"""Groups from a backup: numbers above all that clients may have seen, and no members.

After the backup, the cluster went on: its groups had more generations and epochs, other members, and new groups. None
of this is in the log. A fencing token or an epoch that clients know must not be given again, so each number is raised.
The members are dropped, because a member that was fenced after the backup would be accepted again. All members are
unknown (25) and join anew; offsets stay.

A backup may be restored twice, or an older one after a newer one: then the numbers of the clusters in between are
unknown too. So the clock gives the numbers (broker/backups/raising.py): they are larger than those of all clusters that
were restored before, unless these used numbers faster than the clock.

A group that is not in the log begins above the highest number of its shard (docs/decisions/0002).
"""

from __future__ import annotations

from collections.abc import Iterator

from kohort.coordinator.consumer.group import ConsumerGroup, epoch_value, target_epoch_value
from kohort.coordinator.events import JournalEntry, Millis, Record, Restored
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    generation_record,
    group_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.share_groups.group import ShareGroup
from kohort.coordinator.share_groups.records import (
    share_current_record,
    share_group_record,
    share_member_record,
    share_target_epoch_record,
    share_target_record,
)
from kohort.wire.schemas.group_records import GroupMetadataValue

STEP, NEAR = 100, 1_000
"""A number that is larger than the clock's by NEAR at most is from a restore some minutes ago, and rises by STEP: a
larger step would be ahead of the clock for longer."""
FAR = 1_000_000
"""Any other number larger than the clock's rises by this: the clock was set back."""


def raised(number: int, by_clock: int) -> int:
    """A generation or an epoch after a restore."""
    return number + FAR if number > by_clock + NEAR else max(number + STEP, by_clock)


def restored_records(hard: HardState, event: Restored, now: Millis) -> Iterator[Record]:
    highest = hard.forgotten
    for group_id, number in _numbers(hard).items():
        highest = max(highest, number)
        after = raised(number, event.by_clock)
        # The order of these records is that in which names of deleted groups are forgotten.
        yield generation_record(group_id, after)
        classic = hard.groups.get(group_id)
        if classic is not None:
            # Empty since now: its offsets have their whole retention time.
            value = GroupMetadataValue(
                protocol_type=classic.protocol_type, generation=after, current_state_timestamp=now, members=()
            )
            yield group_record(group_id, value)
        consumers = hard.consumers.groups.get(group_id)
        if consumers is not None:
            yield from _emptied(consumers, after)
        shares = hard.shares.groups.get(group_id)
        if shares is not None:
            yield from _emptied_shares(shares, after)
    yield generation_record("", raised(highest, event.by_clock))


def restored_entries(hard: HardState, event: Restored) -> Iterator[JournalEntry]:
    """For each group that exists. `hard` is the state before the records."""
    for group_id, number in _numbers(hard).items():
        if group_id in hard.groups or group_id in hard.consumers.groups or group_id in hard.shares.groups:
            after = raised(number, event.by_clock)
            cause = f"from a backup; its number was raised from {number} to {after}, and its members must join again"
            yield JournalEntry(group_id, "group restored", cause, generation_id=after)


def _numbers(hard: HardState) -> dict[str, int]:
    """The highest generation or epoch of each name."""
    numbers = dict(hard.generations)
    for group_id, value in hard.groups.items():
        numbers[group_id] = max(numbers.get(group_id, 0), value.generation)
    for group_id, group in hard.consumers.groups.items():
        numbers[group_id] = max(numbers.get(group_id, 0), group.epoch)
    for group_id, shares in hard.shares.groups.items():
        numbers[group_id] = max(numbers.get(group_id, 0), shares.epoch)
    return numbers


def _emptied_shares(group: ShareGroup, epoch: int) -> Iterator[Record]:
    """A share group without members at this epoch. What its members had finished by the time of the backup stays so;
    what they finished later is delivered again."""
    for member_id in dict.fromkeys([*group.members, *group.targets, *group.current]):
        for record in (share_current_record, share_target_record, share_member_record):
            yield record(group.group_id, member_id, None)
    yield share_group_record(group.group_id, epoch)
    yield share_target_epoch_record(group.group_id, epoch, group.assigned_ms)


def _emptied(group: ConsumerGroup, epoch: int) -> Iterator[Record]:
    """A consumer group without members at this epoch."""
    for member_id in dict.fromkeys([*group.members, *group.targets, *group.current]):
        for record in (current_record, target_record, member_record):
            yield record(group.group_id, member_id, None)
    for text in group.patterns:
        yield regex_record(group.group_id, text, None)
    yield consumer_group_record(group.group_id, epoch_value(epoch, 0))
    yield target_epoch_record(group.group_id, target_epoch_value(epoch, group.assigned_ms))
