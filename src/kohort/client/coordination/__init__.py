"""Groups of your own: coordinators, leader election, work sharding.

blocking           BlockingCoordinator, for threads
blocking_election  `blocking_lead`: leader election for threads
blocking_member    the common part of blocking_election and blocking_sharding
blocking_sharding  `blocking_shards`: work sharding for threads
callback_order     which callback is due, without IO
callbacks          the settings and callbacks of both coordinators
coordinator        Coordinator, for asyncio
election           `lead`: one leader at a time
held_items         the sharded items that a worker holds, without IO
item_assignment    which worker gets which item, without IO
lease              what is held under a lease, and the watch that notices its end
session            a coordinator's place in its group, on an event loop
sharding           `shards`: items divided among workers
token_topic        fencing tokens from a compacted topic, for any Kafka cluster
tokens             the types of fencing tokens, by what they promise
"""
