"""Known bugs of the client library's coordinators and assignors; test_mutations.py plants them."""

from __future__ import annotations

from planting import bug

MEMBER, ORDER = "client/membership/classic.py", "client/coordination/callback_order.py"
ELECTION = "client/coordination/election.py"
ASSIGNMENT = "client/coordination/item_assignment.py"
HELD = "client/coordination/held_items.py"
ASSIGNMENT_TEST = "tests/client_library/coordination/test_item_assignment.py::"
STICKY = "client/assignors/sticky.py"
CLASSIC = "client/consumer/classic_ownership.py"
CONSUMER = "client/consumer/consumer_ownership.py"
SHARING = "spark/source/member/sharing.py"
OWNERSHIP_TEST, BOOKS_TEST = (
    "tests/client_library/consumer/test_ownership.py::",
    "tests/spark/source/test_sharing_books.py::",
)
MEMBER_TEST, ORDER_TEST = (
    "tests/client_library/membership/test_membership.py::",
    "tests/client_library/coordination/test_callback_order.py::",
)
STICKY_TEST = "tests/client_library/membership/test_assignors.py::"

LIBRARY_BUGS = {
    "the first heartbeat is sent after an interval, not at once": bug(
        (f"{MEMBER_TEST}test_a_rebalance_revokes_first",),
        (MEMBER, "self._heartbeat_at = now\n            return self._own", "return self._own"),
    ),
    "the heartbeat after a held one is not sent at once": bug(
        (f"{MEMBER_TEST}test_after_a_held_heartbeat_the_next_one_goes_out_at_once",),
        (MEMBER, "held = now - self._requests.sent_at > interval // 2", "held = False"),
    ),
    "a session is counted from the answer, not from the request": bug(
        (f"{MEMBER_TEST}test_after_a_held_heartbeat_the_next_one_goes_out_at_once",),
        (MEMBER, "= self._requests.sent_at + self.settings", "= now + self.settings"),
    ),
    "a member rejoins before its application has let go": bug(
        (f"{MEMBER_TEST}test_a_member_that_does_not_rejoin_by_itself_waits_outside",),
        (MEMBER, "if had and not self.settings.rejoins else", "if False else"),
    ),
    "on_join_prepare is called for the first round only": bug(
        (f"{ORDER_TEST}test_a_rebalance_prepares_with_the_generation_that_ends",),
        (ORDER, "self._prepare_due = True  # also", "# also"),
    ),
    "the result of an old callback is used for a newer round": bug(
        (f"{ORDER_TEST}test_results_that_come_too_late_are_ignored",),
        (ORDER, "if self._assigned is step.assigned:", "if True:"),
    ),
    "metadata that changes during a join is never sent": bug(
        (f"{ORDER_TEST}test_a_rejoin_that_is_wanted_while_a_round_runs_comes_after_it",),
        (ORDER, "if self._rejoin_reason is not None:", "if False:"),
    ),
    "a cooperative member gets a partition that another one still reads": bug(
        (f"{STICKY_TEST}test_nobody_gets_what_another_still_reads",),
        (STICKY, "if partition in owned[member_id] or partition not in read]", "if True]"),
    ),
    "of two claims the older one wins": bug(
        (f"{STICKY_TEST}test_of_two_claims_the_later_generation_counts",),
        (STICKY, "or generation > newest[partition]:", "or generation < newest[partition]:"),
    ),
    "partitions never move to a third member by way of a second one": bug(
        (f"{STICKY_TEST}test_a_member_is_relieved_over_others",), (STICKY, "queue.append(taker)", "pass")
    ),
    "heartbeats renew the lease of a member that never rejoins": bug(
        (f"{MEMBER_TEST}test_a_lease_ends_with_the_rebalance_timeout", "simulator of sharer"),
        (MEMBER, "if rebalancing:", "if False:"),
    ),
    "a member that is removed during a rebalance keeps its old token": bug(
        (f"{ORDER_TEST}test_lost_while_it_joins_asks_for_metadata_again",),
        (MEMBER, "self._kept = self.generation_id, self._owned", "pass"),
    ),
    "a second rebalance ends what a leader keeps": bug(
        (f"{ORDER_TEST}test_a_rebalance_during_the_sync_costs_nothing_that_is_kept",),
        (MEMBER, "return self._kept is not None or (self", "return (self"),
    ),
    "a candidate that leads is not elected again": bug(
        ("simulator of candidate",), (ELECTION, "max(claims, key=claims.__getitem__)", "min(claims)")
    ),
    "a candidate that has resigned is elected before the others": bug(
        ("tests/client_library/coordination/test_election.py::test_who_is_elected",),
        (ELECTION, "RESIGNED = -2", "RESIGNED = 0"),
    ),
    "items that a worker is giving up are not claimed": bug(
        (f"{ASSIGNMENT_TEST}test_holdings_keep_their_token_and_give_up_first", "simulator of sharer"),
        (HELD, "claims = self.held | self.ending", "claims = dict(self.held)"),
    ),
    "an item goes to its next worker before the former one has given it up": bug(
        (f"{ASSIGNMENT_TEST}test_an_item_that_moves_is_nobodys_until_it_is_given_up", "simulator of sharer"),
        (ASSIGNMENT, "if holders.get(item, target[item]) == target[item]:", "if True:"),
    ),
    "a claimed item that is lost meanwhile stays without a worker": bug(
        (f"{ASSIGNMENT_TEST}test_holdings_keep_their_token_and_give_up_first",),
        (HELD, "again=bool(gone)", "again=False"),
    ),
    "an item that returns keeps its old token": bug(
        (f"{ASSIGNMENT_TEST}test_holdings_keep_their_token_and_give_up_first",),
        (HELD, "self.ending.pop(item, None) is not None", "item in self.ending"),
    ),
    "a cooperative member does not rejoin after it has given partitions up": bug(
        (f"{OWNERSHIP_TEST}test_a_cooperative_member_keeps_what_stays_and_rejoins_when_it_has_given_up",),
        (CLASSIC, '                self._rejoin_reason = "given-up partitions are free"\n', ""),
    ),
    "a rebalance during the sync takes a cooperative member's partitions": bug(
        (f"{OWNERSHIP_TEST}test_a_rebalance_over_a_rebalance_costs_a_cooperative_member_nothing",),
        (MEMBER, "if self._is_kept and error ==", "if False and error =="),
    ),
    "a cooperative member without its coordinator keeps its partitions for ever": bug(
        (f"{OWNERSHIP_TEST}test_a_cooperative_member_out_of_reach_loses_all_with_its_session",),
        (MEMBER, "return self._lease_ends_at if rejoins and", "return self._lease_ends_at if False and"),
    ),
    "an eager member keeps its partitions until its next assignment": bug(
        (f"{OWNERSHIP_TEST}test_an_eager_member_gives_up_everything_before_it_rejoins",),
        (CLASSIC, "if not self._cooperative or place[0] not in", "if place[0] not in"),
    ),
    "a revocation is acknowledged before the partitions are given up": bug(
        (f"{OWNERSHIP_TEST}test_a_revocation_is_acknowledged_when_partitions_are_given_up",),
        (CONSUMER, "            if gone:\n                return GiveUp(gone)\n", ""),
    ),
    "a batch's end is committed for a partition that was lost and came back": bug(
        (f"{BOOKS_TEST}test_a_lost_partition_does_not_count_any_more",),
        (SHARING, "place not in left and known is not None and known.epoch == epoch:", "known is not None:"),
    ),
    "a partition that its task has left is committed": bug(
        (f"{BOOKS_TEST}test_a_range_that_tasks_left_is_not_finished",),
        (SHARING, "if place not in left and known is not None", "if known is not None"),
    ),
    "a partition is revoked while a batch reads it": bug(
        (f"{BOOKS_TEST}test_a_batch_states_its_ranges_and_its_reader",),
        (SHARING, "if place in ranges and owned.get(place) == ranges[place][0]}", "if False}"),
    ),
    "a restart repeats a batch that is not committed to the group": bug(
        (f"{BOOKS_TEST}test_where_it_begins",),
        (SHARING, "until if at is None or is_ours(committed, begin) else", "until if at is None else"),
    ),
    "an operator's rewind to the start of the last batch is ignored": bug(
        (f"{BOOKS_TEST}test_an_operators_rewind_counts_also_to_where_the_last_batch_began",),
        (SHARING, "if at is None or is_ours(committed, begin) else", "if at is None or at == begin else"),
    ),
}
