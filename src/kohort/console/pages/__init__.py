"""One module for each screen. ROUTES of a module are its addresses; those below /live/ are streams.

groups     the list of groups
group      one group: partitions, members, rebalances, settings
rebalance  one rebalance as a picture and a table
topics     the list of topics; one topic with its groups
nodes      the brokers
"""
