"""The journal: why a group rebalanced, how long it took and which partitions moved; which transactions were aborted.

journal               entries of the shards' effects, collected into stories; limits; records of the journal's topic
story                 what is kept of one rebalance; its JSON is a format
rebalance_counts      how many rebalances there were, and how long they took, for the metrics
rebalance_end         how a rebalance ended, and which members the others waited for
reconciliation_steps  how the members of a consumer group came to their target
partition_moves       who owns what, and what moved between two assignments
transaction_aborts    transactions that were fenced or timed out
"""
