"""One module for each screen. ROUTES of a module are its addresses; those below /live/ are streams.

groups     the list of groups
doctor     what is wrong with groups
group      one group in tabs: partitions, members, rebalances, ownership, what if, settings
group_ownership, group_what_if  two of these tabs
group_records  the tab Records of a share group
rebalance  one rebalance as a picture and a table
topics     the list of topics; one topic with its groups
messages   the newest records of a partition
users      users, ACLs, quotas
nodes      the brokers
"""
