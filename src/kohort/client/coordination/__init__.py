"""Groups of your own: coordinators, leader election, work sharding.

blocking          BlockingCoordinator, for threads
callback_order    which callback is due, without IO
callbacks         the settings and callbacks of both coordinators
coordinator       Coordinator, for asyncio
election          `lead`: one leader at a time
held_items        the sharded items that a worker holds, without IO
item_assignment   which worker gets which item, without IO
lease             notices when the lease of a leader or worker ends
session           a coordinator's place in its group, on an event loop
sharding          `shards`: items divided among workers
token_topic       fencing tokens from a compacted topic, for any Kafka cluster
tokens            the types of fencing tokens, by what they promise
"""
