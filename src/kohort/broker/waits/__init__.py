"""Fetches and deadlines that wait in the broker.

fetch_waits      fetches that wait for data
reads            requests that need reads of storage
outcomes         what an edge does for such a read
shard_deadlines  the earliest deadline of all state machines
"""
