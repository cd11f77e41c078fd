"""Anomalies in a history of appends and polls, from what the clients saw alone.

transaction_checks.py compares each answer with the log. Nothing here knows the log, so a fault in the fold of the log
cannot hide an anomaly. The names are Adya's, and those of Jepsen's tests of Kafka.

| anomaly | what the history has |
| --- | --- |
| aborted read (G1a) | a poll returned an element of an aborted transaction, or of one that never asked for its commit |
| intermediate read (G1b) | a poll returned an element of a transaction, and passed another one |
| circular flow (G1c) | transactions that read from each other in a circle; those of an id follow each other |
| lost write | an element of a committed transaction is not in its list at the end, or a poll passed it |
| duplicate write | an element is at two offsets, or an offset has two elements |
| polls that are not monotonic | a poll does not begin where the one before ended, or where the last commit says |
| sends that are not monotonic | the elements of a transaction are not in the order in which it sent them |
| a transfer that is made twice | two committed transactions of an id are at one position, or a position has none |
| a cut that does not sum to zero | at one instant, a transfer is visible in part |

Cycles of writes alone (G0) are legal, because Kafka does not isolate writes. A part of a transfer may be invisible at a
cut if it is between the last stable offset and the high watermark: an open transaction is before it, or the end of its
own transaction takes several turns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, pairwise

from kohort.simulator.actors.history import Element, History, Poll, Transaction
from kohort.simulator.world.world import Violation

Place = tuple[int, int]
"""Partition and offset."""
Positions = dict[int, int]
"""By partition: the next offset that a transactional id reads."""


def check_history(history: History) -> None:
    """Raises Violation for the first anomaly."""
    lists = _Lists(history)
    lists.check_sends()
    lists.check_polls()
    visible = lists.visible_by_id()
    _check_positions(history, visible)
    _check_flow(history, visible, lists)
    _check_cuts(history, lists)


class _Lists:
    """The elements that some poll has returned."""

    def __init__(self, history: History) -> None:
        self._history = history
        found: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        for poll in self._all_polls():
            known = found[poll.partition]
            for offset, value in poll.reads:
                if known.setdefault(offset, value) != value:
                    text = f"{poll.partition}-{offset} is {known[offset]!r} and {value!r}"
                    raise Violation("list-append: no duplicate writes", text)
        self.offsets = {partition: sorted(of) for partition, of in found.items()}
        self.elements: dict[Place, Element] = {}
        self.name_of: dict[bytes, str] = {}
        """The transaction of each element."""
        self.parts: defaultdict[str, dict[int, Place]] = defaultdict(dict)
        """By transaction: where each of its elements is."""
        for partition, offsets in sorted(self.offsets.items()):
            for offset in offsets:
                self._add((partition, offset), found[partition][offset])

    def _add(self, place: Place, value: bytes) -> None:
        element = Element.of(value)
        transaction = self._history.transactions.get(element.name)
        if transaction is None or transaction.aborted or not transaction.asks:
            raise Violation("list-append: no aborted reads (G1a)", f"{element} at {place}: {transaction}")
        if value in self.name_of:
            text = f"{element} is at {self.parts[element.name][element.part]} and {place}"
            raise Violation("list-append: no duplicate writes", text)
        self.elements[place] = element
        self.name_of[value] = element.name
        self.parts[element.name][element.part] = place

    def _all_polls(self) -> Iterator[Poll]:
        history = self._history
        yield from chain.from_iterable(transaction.polls for transaction in history.transactions.values())
        yield from chain.from_iterable(history.polls)
        yield from history.whole

    def visible_by_id(self) -> dict[str, list[Transaction]]:
        """The transactions of which elements are visible, in their order: these are committed."""
        found: defaultdict[str, list[Transaction]] = defaultdict(list)
        for name in self.parts:
            transaction = self._history.transactions[name]
            found[transaction.transactional_id].append(transaction)
        return {each: sorted(of, key=lambda one: one.position) for each, of in sorted(found.items())}

    def check_sends(self) -> None:
        """What is committed is there, whole and in order."""
        read = {(poll.partition, offset) for poll in self._history.whole for offset, _ in poll.reads}
        for name, transaction in self._history.transactions.items():
            parts = self.parts.get(name, {})
            if not parts and not transaction.committed:
                continue
            expected = len(transaction.sends)
            if parts:
                expected = max(expected, self.elements[next(iter(parts.values()))].parts)
            there = [place for place in parts.values() if place in read]
            if len(there) < expected:
                text = f"{name} has {expected} elements, at the end there are {sorted(there)} of {sorted(parts)}"
                raise Violation("list-append: no lost writes", text)
            for sent in transaction.sends:
                element = self.elements.get((sent.partition, sent.offset))
                if element is None or element.value != sent.value:
                    raise Violation("list-append: no lost writes", f"{sent} was acknowledged, there is {element}")
            if any(now <= before for before, now in _neighbours(parts[part] for part in sorted(parts))):
                raise Violation("list-append: sends are monotonic", f"{name}: {parts}")

    def check_polls(self) -> None:
        for polls in (*(t.polls for t in self._history.transactions.values()), *self._history.polls):
            at: dict[int, int] = {}
            names: set[str] = set()
            for poll in polls:
                if poll.first != at.get(poll.partition, poll.first):
                    text = f"{poll.partition}-{poll.first} is read after {at[poll.partition]}"
                    raise Violation("list-append: polls are monotonic", text)
                at[poll.partition] = poll.end
                names.update(self.name_of[value] for _, value in poll.reads)
                self._check_poll(poll, names)

    def _check_poll(self, poll: Poll, names: set[str]) -> None:
        """`names`: the transactions of what was polled in this run so far."""
        read = [offset for offset, _ in poll.reads]
        if any(now <= before for before, now in pairwise(read)):
            raise Violation("list-append: polls are monotonic", f"{poll.partition}: {read}")
        offsets = self.offsets.get(poll.partition, [])
        there = offsets[bisect_left(offsets, poll.first) : bisect_left(offsets, poll.end)]
        if there == read:
            return
        text = f"{poll.partition} from {poll.first} to {poll.end}: {read}, others have read {there}"
        if names.intersection(self.elements[poll.partition, each].name for each in set(there).difference(read)):
            raise Violation("list-append: no intermediate reads (G1b)", text)
        raise Violation("list-append: no lost writes", text)


def _neighbours(places: Iterable[Place]) -> Iterator[tuple[int, int]]:
    """The offsets of each place and of the one before it in the same partition."""
    last: dict[int, int] = {}
    for partition, offset in places:
        if partition in last:
            yield last[partition], offset
        last[partition] = offset


def _check_positions(history: History, visible: dict[str, list[Transaction]]) -> None:
    """Every transaction of an id begins to read where the committed ones before it have ended."""
    before: dict[str, dict[int, Positions]] = {}
    for transactional_id, transactions in visible.items():
        if [transaction.position for transaction in transactions] != list(range(len(transactions))):
            found = [(transaction.position, transaction.name) for transaction in transactions]
            raise Violation("bank: each transfer is made once", f"{transactional_id}: {found}")
        positions: Positions = {}
        of_id = before[transactional_id] = {}
        for transaction in transactions:
            of_id[transaction.position] = positions
            positions = {**positions, **{poll.partition: poll.end for poll in transaction.polls}}
            of_id[transaction.position + 1] = positions
    for transaction in history.transactions.values():
        expected = dict(before.get(transaction.transactional_id, {}).get(transaction.position, {}))
        for poll in transaction.polls:
            if poll.first != expected.get(poll.partition, 0):
                text = (
                    f"{transaction.name} of {transaction.transactional_id} at {transaction.position} reads "
                    f"{poll.partition} from {poll.first}, the commits before it end at {expected}"
                )
                raise Violation("list-append: polls are monotonic", text)
            expected[poll.partition] = poll.end


def _check_flow(history: History, visible: dict[str, list[Transaction]], lists: _Lists) -> None:
    """What a transaction has read was committed before it ended, and so were the former ones of its id."""
    after: defaultdict[str, set[str]] = defaultdict(set)
    for transactions in visible.values():
        for before, transaction in pairwise(transactions):
            after[before.name].add(transaction.name)
        for transaction in transactions:
            for poll in transaction.polls:
                for _, value in poll.reads:
                    after[lists.name_of[value]].add(transaction.name)
    waits = dict.fromkeys(lists.parts, 0)
    for followers in after.values():
        for name in followers:
            waits[name] += 1
    free = [name for name, count in waits.items() if not count]
    for name in free:  # it grows
        for follower in after.get(name, ()):
            waits[follower] -= 1
            if not waits[follower]:
                free.append(follower)
    if len(free) < len(waits):
        left = sorted(set(waits).difference(free))
        raise Violation("list-append: no circular flow of information (G1c)", f"among {left}")


def _check_cuts(history: History, lists: _Lists) -> None:
    sums = {
        partition: [0, *accumulate(lists.elements[partition, offset].amount for offset in offsets)]
        for partition, offsets in lists.offsets.items()
    }
    for cut in history.cuts:
        balance = 0
        behind: dict[str, None] = {}
        """Transactions with an element that readers of committed records do not get yet."""
        for partition, (stable, end) in enumerate(cut):
            offsets = lists.offsets.get(partition, [])
            index = bisect_left(offsets, stable)
            balance += sums.get(partition, [0])[index]
            for offset in offsets[index : bisect_left(offsets, end)]:
                behind[lists.elements[partition, offset].name] = None
        for name in behind:
            places = lists.parts[name].values()
            balance -= sum(lists.elements[place].amount for place in places if place[1] < cut[place[0]][0])
        if balance:
            raise Violation("bank: balances sum to zero at every cut", f"{balance} at {cut}")
