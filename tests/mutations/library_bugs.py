"""Known bugs of the client library's coordinators and assignors; test_mutations.py plants them."""

from __future__ import annotations

from planting import Bug

MEMBER, ORDER = "client/membership/classic.py", "client/coordination/callback_order.py"
ELECTION, ASSIGNMENT, HELD = (
    "client/coordination/election.py",
    "client/coordination/item_assignment.py",
    "client/coordination/held_items.py",
)
ASSIGNMENT_TEST = "tests/client_library/test_item_assignment.py::"
STICKY = "client/assignors/sticky.py"
CLASSIC, CONSUMER, SHARING = (
    "client/consumer/classic_ownership.py",
    "client/consumer/consumer_ownership.py",
    "spark/source/member/sharing.py",
)
OWNERSHIP_TEST, BOOKS_TEST = "tests/client_library/test_ownership.py::", "tests/spark/test_sharing_books.py::"
MEMBER_TEST, ORDER_TEST = "tests/client_library/test_membership.py::", "tests/client_library/test_callback_order.py::"
STICKY_TEST = "tests/client_library/test_assignors.py::"

LIBRARY_BUGS = (
    Bug(
        "the first heartbeat waits for an interval, and the member is out of reach",
        (
            (
                MEMBER,
                "            self._heartbeat_at = now\n            return self._own",
                "            return self._own",
            ),
        ),
        (MEMBER_TEST + "test_a_rebalance_lets_go_first",),
    ),
    Bug(
        "after a held heartbeat the member is out of reach",
        ((MEMBER, "        held = now - self._requests.sent_at > interval // 2\n", "        held = False\n"),),
        (MEMBER_TEST + "test_after_a_held_heartbeat_the_next_one_goes_out_at_once",),
    ),
    Bug(
        "a session is counted from the answer",
        (
            (
                MEMBER,
                "self._lease_ends_at = self._requests.sent_at + self.settings",
                "self._lease_ends_at = now + self.settings",
            ),
        ),
        (MEMBER_TEST + "test_after_a_held_heartbeat_the_next_one_goes_out_at_once",),
    ),
    Bug(
        "a member joins again before its application has let go",
        ((MEMBER, "if had and not self.settings.rejoins else", "if False else"),),
        (MEMBER_TEST + "test_a_member_that_does_not_rejoin_by_itself_waits_outside",),
    ),
    Bug(
        "on_join_prepare is called for the first round only",
        ((ORDER, "                self._prepare_due = True  # also", "                # also"),),
        (ORDER_TEST + "test_a_rebalance_prepares_with_the_generation_that_ends",),
    ),
    Bug(
        "what an old callback returned counts for a newer round",
        ((ORDER, "        if self._assigned is step.assigned:\n", "        if True:\n"),),
        (ORDER_TEST + "test_results_that_come_too_late_are_ignored",),
    ),
    Bug(
        "metadata that changes during a join is never told",
        ((ORDER, "            if self._rejoin_reason is not None:\n", "            if False:\n"),),
        (ORDER_TEST + "test_a_rejoin_that_is_wanted_while_a_round_runs_comes_after_it",),
    ),
    Bug(
        "a cooperative member gets what another one still reads",
        ((STICKY, "if partition in owned[member_id] or partition not in read]", "if True]"),),
        (STICKY_TEST + "test_nobody_gets_what_another_still_reads",),
    ),
    Bug(
        "the older of two claims counts",
        ((STICKY, "or generation > newest[partition]:", "or generation < newest[partition]:"),),
        (STICKY_TEST + "test_of_two_claims_the_later_generation_counts",),
    ),
    Bug(
        "members are relieved directly or not at all",
        ((STICKY, "                    queue.append(taker)\n", "                    pass\n"),),
        (STICKY_TEST + "test_a_member_is_relieved_over_others",),
    ),
    Bug(
        "heartbeats renew the lease of who does not join again, for ever",
        ((MEMBER, "        if rebalancing:\n", "        if False:\n"),),
        (MEMBER_TEST + "test_a_lease_ends_with_the_rebalance_timeout", "simulator of sharer"),
    ),
    Bug(
        "who is removed while its group rebalances goes on with what it kept, under its old token",
        ((MEMBER, "                    self._kept = self.generation_id, self._owned\n", "                    pass\n"),),
        (ORDER_TEST + "test_lost_while_it_joins_asks_for_metadata_again",),
    ),
    Bug(
        "a rebalance over a rebalance costs what a leader keeps",
        ((MEMBER, "return self._kept is not None or (self", "return (self"),),
        (ORDER_TEST + "test_a_rebalance_during_the_sync_costs_nothing_that_is_kept",),
    ),
    Bug(
        "a candidate that leads is not elected again",
        ((ELECTION, "max(claims, key=claims.__getitem__)", "min(claims)"),),
        ("simulator of candidate",),
    ),
    Bug(
        "what is being given up is not claimed",
        ((HELD, "claims = self.held | self.ending", "claims = dict(self.held)"),),
        (ASSIGNMENT_TEST + "test_holdings_keep_their_token_and_give_up_first", "simulator of sharer"),
    ),
    Bug(
        "an item goes to its next worker before the former has given it up",
        ((ASSIGNMENT, "        if holders.get(item, target[item]) == target[item]:\n", "        if True:\n"),),
        (ASSIGNMENT_TEST + "test_an_item_that_moves_is_nobodys_until_it_is_given_up", "simulator of sharer"),
    ),
    Bug(
        "what was claimed and is lost meanwhile stays with nobody",
        ((HELD, "again=bool(gone)", "again=False"),),
        (ASSIGNMENT_TEST + "test_holdings_keep_their_token_and_give_up_first",),
    ),
    Bug(
        "an item that comes back keeps its old token",
        ((HELD, "self.ending.pop(item, None) is not None", "item in self.ending"),),
        (ASSIGNMENT_TEST + "test_holdings_keep_their_token_and_give_up_first",),
    ),
    Bug(
        "a cooperative member does not rejoin when it has given up, and nobody gets it",
        ((CLASSIC, '                self._rejoin_reason = "what was given up is free"\n', ""),),
        (OWNERSHIP_TEST + "test_a_cooperative_member_keeps_what_stays_and_rejoins_when_it_has_given_up",),
    ),
    Bug(
        "what a cooperative member keeps is lost with a rebalance during its sync",
        ((MEMBER, "if self._is_kept and error ==", "if False and error =="),),
        (OWNERSHIP_TEST + "test_a_rebalance_over_a_rebalance_costs_a_cooperative_member_nothing",),
    ),
    Bug(
        "a cooperative member that cannot reach its coordinator keeps its partitions for ever",
        ((MEMBER, "return self._lease_ends_at if rejoins and", "return self._lease_ends_at if False and"),),
        (OWNERSHIP_TEST + "test_a_cooperative_member_out_of_reach_loses_all_with_its_session",),
    ),
    Bug(
        "an eager member keeps what it has until its next assignment",
        ((CLASSIC, "if not self._cooperative or place[0] not in", "if place[0] not in"),),
        (OWNERSHIP_TEST + "test_an_eager_member_gives_up_everything_before_it_rejoins",),
    ),
    Bug(
        "what is to be given up is acknowledged at once",
        ((CONSUMER, "            if gone:\n                return GiveUp(gone)\n", ""),),
        (OWNERSHIP_TEST + "test_what_is_taken_away_is_acknowledged_when_it_is_given_up",),
    ),
    Bug(
        "the end of a batch is committed for what was lost and came back meanwhile",
        ((SHARING, "if place not in left and known is not None and known.epoch == epoch:", "if known is not None:"),),
        (BOOKS_TEST + "test_what_is_lost_does_not_count_any_more",),
    ),
    Bug(
        "what tasks have left is committed",
        ((SHARING, "if place not in left and known is not None", "if known is not None"),),
        (BOOKS_TEST + "test_what_tasks_have_left_is_not_finished",),
    ),
    Bug(
        "a partition is given up while a batch reads it",
        ((SHARING, "if place in ranges and owned.get(place) == ranges[place][0]}", "if False}"),),
        (BOOKS_TEST + "test_a_batch_says_what_it_reads_and_who",),
    ),
    Bug(
        "a restart reads again what the group was not told of",
        (
            (
                SHARING,
                "return until if at is None or is_ours(committed, begin) else",
                "return until if at is None else",
            ),
        ),
        (BOOKS_TEST + "test_where_it_begins",),
    ),
    Bug(
        "an operator's rewind to where the last batch began does not count",
        ((SHARING, "if at is None or is_ours(committed, begin) else", "if at is None or at == begin else"),),
        (BOOKS_TEST + "test_an_operators_rewind_counts_also_to_where_the_last_batch_began",),
    ),
)
