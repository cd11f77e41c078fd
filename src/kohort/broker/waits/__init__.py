"""Fetches and deadlines that wait in the broker.

fetch_waits      fetches that wait for data
shard_deadlines  the earliest deadline of all state machines
"""
