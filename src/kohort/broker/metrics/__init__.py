"""What /metrics says. A scrape reads numbers that the broker has anyway, in pieces, between the turns.

families    the table of all series: name, kind, labels, meaning
samples     the lines of one scrape, up to the limit of series; the two text formats
histograms  counts by bounds
turn_times  how long turns and commits take, and what they append
groups      offsets, lag, members and rebalances of groups
topics      partitions and their offsets
totals      numbers of the whole server
scrape      one scrape: all of it, in steps
"""
