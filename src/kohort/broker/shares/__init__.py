"""Share groups in the broker (KIP-932): the shards of their state, and the sessions of their members.

shards    the shards of the share coordinator; what the group coordinator asks of them
sessions  share sessions: which partitions a member fetches, and the number of its next request
reports   what is in flight in a share-partition, and what was archived
archive_notes  journal entries about archived records
given_up  why records were given up that await their dead letters
dead_letters  writes the dead letters of such records
originals  reads the records that dead letters copy
access    a share-partition on behalf of a request: topic, leader, rights, state
"""
