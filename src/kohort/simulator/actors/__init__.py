"""The simulated clients.

actor         a process that can pause or end, with connections
offsets       OffsetCommit and OffsetFetch requests
participant   a member: an actor with a membership of the client library
member        a member of a classic group that works and commits
consumer      a member of a consumer group that works and commits
library_user  a user of `Coordinator`
candidate     a candidate for leadership
share_member  a member of a share group; a producer of what it reads
overseer      an operator of a share group
sharer        a worker that shares items
reader        fetches in the name of members
impostor      invalid requests to consumer groups
hostile       requests that cost much, on connections that it leaves
guest         loses its right and gets it back
operator      changes settings of groups
transactor    a transactional producer that reads, processes and writes
auditor       a consumer of committed records
history       what transactional clients sent and read
workload      committers, admins, producers, storms, liars
"""
