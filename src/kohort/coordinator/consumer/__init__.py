"""Consumer groups (KIP-848): members say what they want, and the coordinator leads each of them to its assignment.

assignment_records      a member's state and its target, to and from their records
checks                  why a heartbeat is refused
classic_fields          the fields in a member's record that only the classic protocol has
group                   hard state: a group, built from its records
heartbeat               ConsumerGroupHeartbeat, from the request to the answer
held_heartbeats         how long an answer is held, and what the next interval is
journal_notes           what the journal says of members and of changes
leave                   members that leave, expire or are removed
lifecycle               load, topics, settings, deadlines, deletion, unload; builds the other parts
members                 operations on a member of either protocol: update, take over, reconcile, wake, forget
pattern_subscriptions   what the patterns of a group match, and when the group takes that in
reconciliation          a member's next step towards its target: one pure function
responses               answers and descriptions
soft_state              RunningGroup and RunningMember, and small operations that all parts share
staged_target           how much of a target takes effect now: gradual hand-over, rollout freeze
status                  who is awaited in a running rebalance
target                  when a target is made, by which assignor
target_work             the part of a large target that is made outside of the shard
"""
