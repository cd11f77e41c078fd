"""Known bugs of authorization; test_mutations.py plants them."""

from __future__ import annotations

from planting import bug

AUTHORIZER, REPEATS, BROKER = "broker/security/authorizer.py", "broker/shortcuts/repeats.py", "broker/broker.py"
REVOCATION = "tests/broker/security/test_revocation.py::"
DECISION = "tests/broker/security/test_authorizer.py::"
GUARDS = "tests/broker/security/test_guards.py::"

ACL_BUGS = {
    "a cached answer outlives the right to it": bug(
        (f"{REVOCATION}test_heartbeats_that_are_answered_at_once", "simulator of guest"),
        (
            REPEATS,
            "        self.forget(connection.id)\n        connection.rules_version",
            "        connection.rules_version",
        ),
    ),
    "a decision is kept when the ACLs change": bug(
        (f"{DECISION}test_a_decision_looks_at_what_matches_only",),
        (
            AUTHORIZER,
            "            self._forget()\n        key = operation << 3 | resource\n        kept",
            "            pass\n        key = operation << 3 | resource\n        kept",
        ),
    ),
    "a parked request outlives the right to it": bug(
        (f"{REVOCATION}test_v11_a_parked_join_is_refused",),
        (BROKER, "        self._refuse_parked()\n        if not", "        if not"),
    ),
    "an ALLOW on a longer prefix outweighs a DENY": bug(
        (f"{DECISION}test_many_acls",),
        (
            AUTHORIZER,
            "                if entry.denies:\n                    return",
            "                if entry.denies and allowing is None:\n                    return",
        ),
    ),
    "the answers to DeleteTopics tell by their places what exists": bug(
        (f"{GUARDS}test_topics_are_deleted_by_those_who_may",),
        ("broker/security/guards/topics.py", "    ask.state.random.shuffle(rows)\n", ""),
    ),
}
