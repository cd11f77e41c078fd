"""The shards of the transaction coordinator, and the markers that they decide on.

shards         which shard owns a transactional id, which broker answers for it
endings        the markers of a transaction, in one turn or over several
connections    which commits of offsets come late
"""
