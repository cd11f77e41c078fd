"""Committed offsets: hard state only.

offsets          commit, fetch, delete, expiry; `_check_commit` decides whether a commit is refused as a whole
ownership_fence  which partitions a commit or a fetch is refused for, by the member that owns them
sizes            the size of all offsets, and how much a commit may add to it
transactional    TxnOffsetCommit: which commits of a transaction are refused
groups_by_topic  which groups have offsets of a topic
pending          offsets committed in transactions that are not decided
changes          what is destroyed of them, for the journal
former_groups    how many names of groups that are gone are remembered
repeated_commit  a commit that differs from the last one only in its offsets: its records, made in one go
"""
