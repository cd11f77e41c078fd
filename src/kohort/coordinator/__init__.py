"""The group coordinator: a deterministic state machine that owns one partition of `__consumer_offsets`.

It is pure: time, randomness and records are arguments; the broker writes the records and sends the replies.

    state_machine  `StateMachine`: what the broker knows of a shard
    shard          `Shard`: step, apply, next_deadline; the queries; which part takes which request
    events         what goes into a step and what comes out
    effects        the effects of the step under way
    hard_state     the fold of the log
    records        records to and from bytes, in Kafka's schema
    soft_state     running groups, parked requests and deadlines
    deadlines      timers as data
    described      how the members of a group are described in parts
    member_bytes   the bound on the size of all members
    steady_answer  answers that may be given again without a step
    topics         what the coordinator knows of topics
    invariants     what holds between two events
    restored       what a backup's groups become: larger numbers, no members
    classic/       groups of the classic protocol
    consumer/      groups of the consumer protocol (KIP-848)
    migration/     members with the classic protocol in consumer groups; upgrade and downgrade
    patterns/      subscriptions by regular expression
    offsets/       committed offsets
    assignors/     target assignments
    settings/      settings of a group
    journal/       why a group rebalanced
    transactions/  the transaction coordinator, a machine of its own

ARCHITECTURE.md says how to add a field to a group's record, and where a commit is refused.
"""
