"""Groups of the classic protocol. The states of a group and what each request does in them: requests.

requests       SyncGroup, Heartbeat, LeaveGroup, deadlines, load and unload
join           JoinGroup: who may join, under which id, and whether the join starts a rebalance
rebalance      how a rebalance starts, which members it waits for, how it ends
group          the running group and its members
group_record   a running group to and from its record
protocols      the protocols of a member
protocol_vote  which protocols are common, and which is chosen
checks         what a request may be refused for
responses      responses built from a group
status         the state of a group's rebalance now
"""
