"""Makes the tables of a history from decoded log records, for whole log partitions.

commits         offset commits as a series for each place; sawteeth, rates
group_records   the records of groups as arrays, their members flat
groups          generations, members, and the events of groups
clients         the client of each member
ownership       which member had which partition, from when to when
rebalances      rebalances and storms
group_state     a group's members, and its times without any
lag             the rows of the table lag, and the lag of groups
spans           spans of time from the steps of a log
columns         Arrow columns to arrays, and back
"""
