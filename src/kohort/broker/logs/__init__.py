"""A partition's log.

partition     numbers and reads batches; leader epochs
validation    what a client may append
idempotence   sequence numbers of idempotent producers
retention     which batches are too old or too many
compaction    which records a newer one of the same key replaces
"""
