"""Short ways for the most frequent requests, with the same answers and records as the handlers.

repeats     the cached answers to repeated requests, by connection
heartbeats  heartbeats that are answered without a turn or a handler
commits     commits that differ from the last one only in their offsets
"""
