"""Checks after every turn.

onlooker            sees the server's input, commits and output, and calls the checks
promises            what an answer about a classic group promises
facts               what is known of a classic group
classic_checks      classic groups: journal, removals, expiry
ledger              the durable records, folded independently
consumer_checks     consumer groups: answers, deadlines, commits
consumer_ledger     the durable records of consumer groups
beliefs             which partitions members believe to own
hold_checks         rollout freezes
target_checks       targets of members that change their subscription or return
reader_checks       fetches of members
transaction_ledger  offsets of open transactions, and replays of the log
transaction_checks  transactions, by a fold of their own
list_append         transactions, by what their clients sent and read
share_checks        share groups: holders, counts, and a fold of the state of share-partitions
dead_letter_checks  each record of a share group that is given up has one dead letter
holders             leaderships and items: one holder at a time, growing tokens
"""
