"""A partition's log.

partition       numbers and reads batches; leader epochs
tails           their ends in memory
preparation     decompression and compression of produced batches, in steps
validation      what a client may append
producers       sequence numbers, epochs and transactions of producers
retention       which batches are too old or too many
time_search     records by their time
transactions    which transactions are open or were aborted
compaction      which records a newer one of the same key replaces
dirty_part      which part of a log is compacted, and when
newest_records  what a replay reads: the newest record of each key
"""
