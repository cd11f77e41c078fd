"""Dead letters of share groups (KIP-1191): a record in the topic that the group names, for each record that is rejected
or delivered too often.

Such a record is ARCHIVING in the commit that gives it up, and holds the start of its share-partition. At the end of
each turn some dead letters are written, and their records are ARCHIVED in the same commit. So each dead letter is
written once, whatever crashes. A few are written in the turn that gives the records up, and then no client sees the
state between. A rejection of thousands of records, or of records that have to be read or decompressed to be copied,
takes several turns; a start goes on with what is left.

As in Kafka, a dead letter that cannot be written does not hold up its group: the record is archived without one. The
server's log and the journal of the group say why.

Source: ShareGroupDLQStateManager.java, ShareGroupDLQValidator.java, ShareGroupDLQRecordHelper.java; rows SH60 to SH62.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice

from kohort.broker.logs.partition import Partition
from kohort.broker.logs.preparation import AT_ONCE, prepare
from kohort.broker.logs.validation import Room
from kohort.broker.security.audit import printable
from kohort.broker.shares.originals import Originals
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import INTERNAL_TOPICS, Topic, check_topic_name
from kohort.broker.topics.topic_configs import DEAD_LETTERS_ALLOWED, parse
from kohort.broker.turn import Complaint
from kohort.coordinator.settings.group_settings import GroupSettings
from kohort.coordinator.shares.cells import Cell, archiving
from kohort.coordinator.shares.events import Archived, DeadLettered, RecordsArchived, ShareKey
from kohort.coordinator.shares.tally import REJECTED, TOO_OFTEN
from kohort.storage.protocol import LogKey
from kohort.wire.batches import HEADER_SIZE, Record, batch_around
from kohort.wire.records import varint

PREFIX = "__dlq.errors."
MESSAGES = {
    REJECTED: b"Offset rejected by client.",
    TOO_OFTEN: b"Offset delivery count exceeded the threshold.",
}
"""Kafka's texts (ShareGroupDLQManager.java)."""
OWN_CONFIGS = {DEAD_LETTERS_ALLOWED: "true", "message.timestamp.type": "CreateTime"}
"""Those of a topic that is created for dead letters."""
LETTERS_A_TURN = 500
"""Some four milliseconds."""
KEYS_A_TURN = 50
"""Share-partitions whose dead letters one turn writes: each is an operation of the commit."""
PIECE_BYTES = 131_072
"""Bytes of dead letters that are one batch, if it is not a single one."""
Ranges = list[tuple[int, int]]


class DeadLetters:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._awaiting = state.shares.awaiting
        self._job: Generator[None, None, None] | None = None
        """The work on one share-partition."""
        self._originals: Originals | None = None
        self._left = 0
        """Dead letters that this turn may still write."""

    @property
    def busy(self) -> bool:
        """There is work for the next turn."""
        return bool(self._awaiting) and not (self._originals is not None and self._originals.waits)

    def step(self) -> None:
        """A bounded piece of work, at the end of a turn."""
        if not self.busy:
            return
        self._left = LETTERS_A_TURN
        for _ in range(KEYS_A_TURN):
            key = next(iter(self._awaiting), None)
            if self._job is None:
                if key is None:
                    self._state.shares.given_up.forget_others(self._awaiting)
                    return
                self._job = self._write_all(key)
            if next(self._job, self) is not self:
                return  # the step is over, or it waits for a read
            self._job = self._originals = None
            if self._left <= 0:
                return
            if key in self._awaiting:  # others come before what was given up meanwhile
                del self._awaiting[key]
                self._awaiting[key] = None

    def _write_all(self, key: ShareKey) -> Generator[None, None, None]:
        """The dead letters that are due now. None at the end of a step."""
        shard = self._state.shares.find(key)
        assert shard is not None
        cells = archiving(shard.states[key].cells)
        settings = self._state.shards[self._state.shard_of(key.group)].settings.of(key.group)
        reasons = _Reasons(self._state.shares.given_up.take(key), settings.share_delivery_count_limit)
        target = self._target(key, settings)
        if isinstance(target, str):
            self._give_up(key, [part for cell in cells for part in reasons.parts(cell)], target)
            return
        copies: Iterator[Record | None] = iter(())
        if settings.errors_deadletterqueue_copy_record_enable:
            copies = self._copies(key, cells)
        name = settings.errors_deadletterqueue_topic_name
        piece = _Piece(self._state, key, target, name)
        original: Record | None = None
        is_over = False
        for part in (part for cell in cells for part in reasons.parts(cell)):
            for offset in range(part.first, part.last + 1):
                while not is_over and (original is None or original.offset < offset):
                    found = next(copies, self)
                    if found is None:
                        yield
                    is_over = found is self
                    original = found if isinstance(found, Record) else original
                is_copied = original is not None and original.offset == offset
                while not piece.add(part, offset, original if is_copied else None):
                    if not (yield from self._write(piece)):
                        return
                    piece = _Piece(self._state, key, target, name)
        yield from self._write(piece)

    def _copies(self, key: ShareKey, cells: Sequence[Cell]) -> Generator[Record | None, None, None]:
        log = self._state.topics.partition_of(LogKey(key.topic_id, key.partition))
        if log is not None:
            self._originals = Originals(log, self._state.reads)
            yield from self._originals.of([(first, last) for first, last, _, _ in cells])

    def _write(self, piece: _Piece) -> Generator[None, None, bool]:
        """Append a piece, and archive its records. False if the state is another one meanwhile."""
        state, target, data = self._state, piece.target, piece.batch()
        room = Room(len(piece.letters), len(data))
        codec = target.settings.codec
        if data and codec is not None and len(data) > AT_ONCE:
            for _ in prepare([(data, codec)], room):
                yield
        if state.topics.partition_of(target.log) is not target or not self._still_awaits(piece):
            return False
        if data:
            appended = state.turn.append(target, data, room)
            if appended.error:
                piece.refuse(appended.message or appended.error.message)
        for why, parts in piece.refused.items():
            self._give_up(piece.key, parts.all(), why)
        if written := piece.written.all():
            state.shares.ask(piece.key, DeadLettered(piece.key, _ranges(written), piece.name))
            self._note(piece.key, written, f", dead letters in {piece.name}")
        self._left -= piece.count
        if self._left <= 0:
            yield
        return True

    def _still_awaits(self, piece: _Piece) -> bool:
        shard = self._state.shares.find(piece.key)
        stored = shard.states.get(piece.key) if shard is not None else None
        found = _joined((first, last) for first, last, *_ in archiving(stored.cells if stored is not None else ()))
        return all(any(low <= first and last <= high for low, high in found) for first, last in piece.ranges)

    def _give_up(self, key: ShareKey, parts: Sequence[Archived], why: str) -> None:
        """These records have no dead letters."""
        self._state.shares.ask(key, DeadLettered(key, _ranges(parts), ""))
        self._note(key, parts, f", without dead letters because {why}")
        values = (("group", printable(key.group)), ("why", printable(why)))
        self._state.turn.complain(Complaint("no dead letters", "records were archived without dead letters", values))

    def _note(self, key: ShareKey, parts: Sequence[Archived], fate: str) -> None:
        self._state.shares.archive_notes.note(RecordsArchived(key, tuple(parts)), self._state.now, fate)

    # -- the topic

    def _target(self, key: ShareKey, settings: GroupSettings) -> Partition | str:
        """The partition for the dead letters of a share-partition, or why there is none."""
        state, name = self._state, settings.errors_deadletterqueue_topic_name
        config = state.catalog.config
        prefix = config.errors_deadletterqueue_topic_name_prefix
        topic = state.topic(name)
        if not name:
            return "the group names no dead-letter topic any more"
        shown = printable(name)
        if name.startswith("__"):
            return f"topic {shown} begins with __"
        if topic is not None and not _allows(topic):
            return f"topic {shown} has not {DEAD_LETTERS_ALLOWED}=true"
        if prefix and not name.startswith(prefix):
            return f"topic {shown} does not begin with {prefix} (errors.deadletterqueue.topic.name.prefix)"
        if topic is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                return f"there is no topic {shown}"
            if problem := self._cannot_create(name):
                return problem
            topic = self._create(name, key.group)
        partitions = state.topics.partitions[topic.topic_id]
        return partitions[key.partition % len(partitions)]

    def _cannot_create(self, name: str) -> str:
        state, shown = self._state, printable(name)
        if (problem := check_topic_name(name)) or name in INTERNAL_TOPICS:
            return problem or f"topic {shown} is internal"
        if other := state.catalog.colliding(name):
            return f"topic {shown} would collide with {other}"
        config = state.config
        if state.catalog.partition_count + state.topics.growing_count + config.num_partitions > config.max_partitions:
            return f"there is no room for topic {shown} (max.partitions)"
        return ""

    def _create(self, name: str, group: str) -> Topic:
        state, config = self._state, self._state.config
        assignments = state.topics.place(config.num_partitions, config.default_replication_factor)
        state.turn.tell("topic created", topic=name, partitions=len(assignments), for_dead_letters_of=printable(group))
        return state.topics.create(name, assignments, dict(OWN_CONFIGS))


def _allows(topic: Topic) -> bool:
    return bool(parse(DEAD_LETTERS_ALLOWED, topic.configs.get(DEAD_LETTERS_ALLOWED, "false")))


def _ranges(parts: Sequence[Archived]) -> tuple[tuple[int, int], ...]:
    return tuple((part.first, part.last) for part in parts)


class _Reasons:
    """Why the records of a share-partition were given up."""

    def __init__(self, known: Sequence[Archived], limit: int) -> None:
        """`known`: by offset. `limit`: the group's limit of deliveries."""
        self._known = known
        self._limit = limit

    def parts(self, cell: Cell) -> Iterator[Archived]:
        """The parts of a cell that have one reason each."""
        at, last, _, deliveries = cell
        inferred = TOO_OFTEN if deliveries >= self._limit else REJECTED
        start = bisect_right(self._known, at, key=lambda one: one.first)
        for one in islice(self._known, max(start - 1, 0), None):
            if one.first > last:
                break
            if one.last < at or one.deliveries != deliveries:
                continue
            if at < one.first:
                yield Archived(at, one.first - 1, deliveries, inferred, "", 0)
            stop = min(one.last, last)
            yield one._replace(first=max(at, one.first), last=stop)
            at = stop + 1
        if at <= last:
            yield Archived(at, last, deliveries, inferred, "", 0)


class _Piece:
    """Dead letters that are one batch."""

    def __init__(self, state: BrokerState, key: ShareKey, target: Partition, name: str) -> None:
        self.key = key
        self.target = target
        self.name = name
        """Of the dead-letter topic."""
        self.letters: list[bytes] = []
        """Encoded records."""
        self.count = 0
        """Records with letters, and without."""
        self.written = _Parts()
        self.refused: dict[str, _Parts] = {}
        """By why they have none."""
        self._now = state.now
        self._size = HEADER_SIZE
        topic = state.catalog.by_id.get(key.topic_id)
        place = topic.name.encode() if topic is not None else base64.urlsafe_b64encode(key.topic_id)
        self._before = b"".join(
            (
                _header("topic", place),
                _header("partition", str(key.partition).encode()),
                _field(f"{PREFIX}offset".encode()),
            )
        )
        """The headers up to the value of the offset's."""
        self._after: tuple[Archived | None, bytes] = None, b""
        """Those after it, of this part."""

    def add(self, part: Archived, offset: int, original: Record | None) -> bool:
        """Add the letter of one record of `part`. Without `original` it only says where the record is. False if it
        belongs to the next piece."""
        most = self.target.settings.max_message_bytes
        letter = self._letter(part, offset, original)
        if original is not None and HEADER_SIZE + len(letter) > most:
            letter = self._letter(part, offset, None)
        is_full = self._size + len(letter) > min(most, PIECE_BYTES) or self.count == LETTERS_A_TURN
        if is_full and self.count:
            return False
        self.count += 1
        if HEADER_SIZE + len(letter) > most:
            self._refuse(part, offset, f"{self.name} takes no batch of their size (max.message.bytes={most})")
        elif self.target.settings.compact and (original is None or original.key is None):
            self._refuse(part, offset, f"{self.name} is compacted, and takes no records without a key")
        else:
            self.letters.append(letter)
            self._size += len(letter)
            self.written.add(part, offset)
        return True

    def _letter(self, part: Archived, offset: int, original: Record | None) -> bytes:
        """An encoded record (wire/records.py): five hundred in a few milliseconds."""
        if self._after[0] is not part:
            count = _header("delivery.count", str(part.deliveries).encode())
            after = _header("group", self.key.group.encode()) + count + _header("message", MESSAGES[part.why])
            self._after = part, after
        place = b"%d" % offset
        about = b"".join((self._before, varint(len(place)), place, self._after[1]))
        if original is None:
            body = b"".join((b"\0\0", varint(len(self.letters)), WITHOUT_COPY, about))
            return varint(len(body)) + body
        kept = tuple(header for header in original.headers if not header[0].startswith(PREFIX))
        body = b"".join(
            (
                b"\0\0",
                varint(len(self.letters)),
                _field(original.key),
                _field(original.value),
                varint(FACTS + len(kept)),
                *(_field(name.encode()) + _field(value) for name, value in kept),
                about,
            )
        )
        return varint(len(body)) + body

    def batch(self) -> bytes:
        """Empty if there are no letters."""
        if not self.letters:
            return b""
        return batch_around(b"".join(self.letters), len(self.letters), self._now, base_offset=0, leader_epoch=0)

    @property
    def ranges(self) -> Ranges:
        """The offsets of all its records."""
        parts = [part for parts in (self.written, *self.refused.values()) for part in parts.all()]
        return _joined((part.first, part.last) for part in sorted(parts))

    def refuse(self, why: str) -> None:
        """The topic does not take the batch."""
        self.refused.setdefault(why, _Parts()).extend(self.written)
        self.written = _Parts()

    def _refuse(self, part: Archived, offset: int, why: str) -> None:
        self.refused.setdefault(why, _Parts()).add(part, offset)


class _Parts:
    """Offsets, with what is known of each: neighbours that are alike are one range."""

    def __init__(self) -> None:
        self._parts: list[tuple[Archived, int, int]] = []

    def add(self, part: Archived, offset: int) -> None:
        if self._parts:
            last = self._parts[-1]
            if last[0] is part and last[2] + 1 == offset:
                self._parts[-1] = (part, last[1], offset)
                return
        self._parts.append((part, offset, offset))

    def extend(self, others: _Parts) -> None:
        self._parts += others._parts

    def all(self) -> list[Archived]:
        return [part._replace(first=first, last=last) for part, first, last in self._parts]


FACTS = 6
"""Headers of a letter besides those of its record."""
WITHOUT_COPY = b"\1\1" + varint(FACTS)
"""No key, no value, and the number of headers."""


def _field(value: bytes | None) -> bytes:
    return b"\1" if value is None else varint(len(value)) + value


def _header(name: str, value: bytes) -> bytes:
    return _field((PREFIX + name).encode()) + _field(value)


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Neighbours of ranges in order become one."""
    found: Ranges = []
    for first, last in ranges:
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
