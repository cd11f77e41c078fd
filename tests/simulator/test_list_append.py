"""Anomalies planted in a history of appends and polls, one at a time; each is found, and the sound history has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.simulator.actors.history import Element, History, Poll, Sent, Transaction
from kohort.simulator.checks.list_append import check_history
from kohort.simulator.world.world import Violation

PARTITIONS = range(3)


class Clients:
    """Three transactions: a1 moves 5 from partition 1 to 0, b1 reads that and moves 3 from 2 to 1, a2 reads both and
    moves 1 within partition 0. At offsets without an element are markers."""

    def __init__(self) -> None:
        self.history = History()
        self.lists: dict[int, dict[int, bytes]] = {partition: {} for partition in PARTITIONS}
        self.a1 = self.transfer("a", 0, (0, 0, 5), (1, 0, -5))
        self.b1 = self.transfer("b", 0, (1, 2, 3), (2, 0, -3))
        self.b1.polls.append(self.poll(1, 0, 2))
        self.a2 = self.transfer("a", 1, (0, 2, 1), (0, 3, -1))
        self.a2.polls += [self.poll(1, 0, 2), self.poll(1, 2, 4), self.poll(2, 0, 2)]
        self.history.polls.append([self.poll(0, 0, 2), self.poll(1, 0, 4), self.poll(0, 2, 5), self.poll(2, 0, 2)])
        # After b1; in the middle of a2's end in two phases; and a2's first element is behind an open transaction.
        self.history.cuts += [((2, 2), (4, 4), (2, 2)), ((2, 5), (4, 4), (2, 2)), ((3, 5), (4, 4), (2, 2))]

    def transfer(self, transactional_id: str, position: int, *moves: tuple[int, int, int]) -> Transaction:
        name = f"{transactional_id}{position + 1}"
        transaction = self.history.begin(transactional_id, position, name)
        for part, (partition, offset, amount) in enumerate(moves):
            value = Element(transactional_id, position, name, part, len(moves), amount).value
            self.lists[partition][offset] = value
            transaction.sends.append(Sent(partition, offset, value))
        transaction.asks = transaction.committed = True
        return transaction

    def poll(self, partition: int, first: int, end: int) -> Poll:
        """What the list has."""
        reads = [(offset, value) for offset, value in self.lists[partition].items() if first <= offset < end]
        return Poll(partition, first, end, reads)

    def check(self) -> None:
        self.history.whole = [self.poll(partition, 0, 10) for partition in PARTITIONS]
        check_history(self.history)


def without(poll: Poll, offset: int) -> Poll:
    return poll._replace(reads=[read for read in poll.reads if read[0] != offset])


def aborted(clients: Clients) -> None:
    clients.b1.committed, clients.b1.aborted = False, True


def never_to_be_committed(clients: Clients) -> None:
    clients.b1.committed = clients.b1.asks = False


def sent_by_nobody(clients: Clients) -> None:
    clients.lists[2][5] = Element("c", 0, "c1", 0, 1, 0).value


def passed_after_the_other_part(clients: Clients) -> None:
    [polls] = clients.history.polls
    polls[1] = without(polls[1], 0)


def passed_within_a_partition(clients: Clients) -> None:
    [polls] = clients.history.polls
    polls[2] = without(polls[2], 3)


def read_by_both(clients: Clients) -> None:
    """a1 has read what b1 wrote, and b1 what a1 wrote."""
    clients.a1.polls += [clients.poll(1, 0, 2), clients.poll(1, 2, 4)]
    clients.a2.polls = [clients.poll(2, 0, 2)]


def read_by_a_former_one(clients: Clients) -> None:
    """b1 has read what a2 wrote, which has read what b1 wrote."""
    clients.b1.polls = [clients.poll(0, 0, 5)]


def read_by_itself(clients: Clients) -> None:
    clients.b1.polls = [clients.poll(1, 0, 4)]


def lost_at_the_end(clients: Clients) -> None:
    """Only earlier readers have seen it."""
    del clients.lists[2][0]


def never_seen(clients: Clients) -> None:
    clients.transfer("c", 0, (2, 5, 0))
    del clients.lists[2][5]


def seen_in_part(clients: Clients) -> None:
    """The answer to its commit was lost."""
    clients.transfer("c", 0, (0, 6, 2), (2, 5, -2)).committed = False
    del clients.lists[2][5]


def passed(clients: Clients) -> None:
    clients.a2.polls[0] = without(clients.a2.polls[0], 0)
    clients.a2.polls = clients.a2.polls[:1]


def elsewhere(clients: Clients) -> None:
    """Not at the offset that was acknowledged."""
    clients.lists[2][4] = clients.lists[2].pop(0)
    clients.a2.polls[2:] = clients.history.polls[0][3:] = [Poll(2, 0, 2, [])]


def appended_twice(clients: Clients) -> None:
    clients.lists[2][5] = clients.lists[2][0]


def two_at_one_offset(clients: Clients) -> None:
    clients.lists[2][0] = clients.lists[1][2]


def goes_back_in_a_transaction(clients: Clients) -> None:
    clients.a2.polls.append(clients.poll(1, 2, 4))


def skips_in_a_transaction(clients: Clients) -> None:
    clients.a2.polls[1] = clients.poll(1, 3, 4)


def goes_back_after_a_commit(clients: Clients) -> None:
    """a2 reads what its predecessor has read."""
    clients.a1.polls.append(clients.poll(2, 0, 2))


def skips_after_a_commit(clients: Clients) -> None:
    """The offset that was committed is 2."""
    clients.history.begin("b", 1, "b2").polls.append(clients.poll(1, 4, 6))


def goes_back_in_an_answer(clients: Clients) -> None:
    [polls] = clients.history.polls
    polls[2] = polls[2]._replace(reads=polls[2].reads[::-1])


def out_of_order(clients: Clients) -> None:
    first, second = clients.a2.sends
    clients.lists[0][2], clients.lists[0][3] = second.value, first.value
    clients.a2.sends = [first._replace(offset=3), second._replace(offset=2)]
    clients.history.polls[0][2] = clients.poll(0, 2, 5)


def twice(clients: Clients) -> None:
    clients.a2.position = 0


def half_a_transfer(clients: Clients) -> None:
    """a1 is in partition 0, and partition 1 ends before it."""
    clients.history.cuts.append(((2, 2), (0, 0), (0, 0)))


def half_a_transfer_beside_an_open_one(clients: Clients) -> None:
    """There the last stable offset of partition 0 explains it, but that of partition 2 is its end."""
    clients.history.cuts.append(((2, 5), (4, 4), (0, 0)))


@pytest.mark.parametrize(
    ("plant", "promise"),
    [
        (aborted, "list-append: no aborted reads (G1a)"),
        (never_to_be_committed, "list-append: no aborted reads (G1a)"),
        (sent_by_nobody, "list-append: no aborted reads (G1a)"),
        (passed_after_the_other_part, "list-append: no intermediate reads (G1b)"),
        (passed_within_a_partition, "list-append: no intermediate reads (G1b)"),
        (read_by_both, "list-append: no circular flow of information (G1c)"),
        (read_by_a_former_one, "list-append: no circular flow of information (G1c)"),
        (read_by_itself, "list-append: no circular flow of information (G1c)"),
        (lost_at_the_end, "list-append: no lost writes"),
        (never_seen, "list-append: no lost writes"),
        (seen_in_part, "list-append: no lost writes"),
        (passed, "list-append: no lost writes"),
        (elsewhere, "list-append: no lost writes"),
        (appended_twice, "list-append: no duplicate writes"),
        (two_at_one_offset, "list-append: no duplicate writes"),
        (goes_back_in_a_transaction, "list-append: polls are monotonic"),
        (skips_in_a_transaction, "list-append: polls are monotonic"),
        (goes_back_after_a_commit, "list-append: polls are monotonic"),
        (skips_after_a_commit, "list-append: polls are monotonic"),
        (goes_back_in_an_answer, "list-append: polls are monotonic"),
        (out_of_order, "list-append: sends are monotonic"),
        (twice, "bank: each transfer is made once"),
        (half_a_transfer, "bank: balances sum to zero at every cut"),
        (half_a_transfer_beside_an_open_one, "bank: balances sum to zero at every cut"),
    ],
)
def test_a_planted_anomaly_is_found(plant: Callable[[Clients], None], promise: str) -> None:
    clients = Clients()
    plant(clients)
    with pytest.raises(Violation) as found:
        clients.check()
    assert found.value.check == promise


def test_a_sound_history_has_no_anomaly() -> None:
    """Also with commits whose answers were lost, and a transaction that was aborted and has read what is read again."""
    clients = Clients()
    clients.transfer("c", 0, (0, 6, 2), (2, 5, -2)).committed = False
    clients.history.begin("c", 1, "c2").asks = True
    failed = clients.history.begin("b", 1, "b2")
    failed.aborted = True
    failed.polls.append(clients.poll(1, 2, 4))
    clients.check()
