"""What /metrics says. A scrape reads numbers that the broker has anyway, in pieces, between the turns.

families       the table of all series: name, kind, labels, meaning
samples        the lines of one scrape, up to the limit of series; the two text formats
histograms     counts by bounds
turn_times     how long turns and commits take, and what they append
request_times  how long requests take, by API
error_counts   the errors of answers, by API
groups         offsets, lag, members and rebalances of groups
share_groups   share groups: unfinished records, what is in flight, outcomes
rows           what was read of a group
group_names    which groups have series
topics         partitions and their offsets
quotas         what clients use of their quotas
kminion        a second set of series, under other names
totals         numbers of the whole server
scrape         one scrape: all of it, in steps
"""
