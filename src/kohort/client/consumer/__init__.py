"""Members of groups of consumers: `GroupConsumer` for asyncio, `BlockingGroupConsumer` for threads.

blocking             BlockingGroupConsumer
classic_ownership    the partitions that a member of a classic group owns
consumer             GroupConsumer: the calls and callbacks of an application
consumer_ownership   the partitions that a member of a consumer group (KIP-848) owns
lookups              calls of `Cluster` in a thread, for an event loop
options              the settings, and the Ownership that they make
ownership            the steps from one set of owned partitions to the next, without IO
session              a consumer's place in its group, on an event loop
"""
