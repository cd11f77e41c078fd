"""Subscriptions by regular expression, as far as they do not concern a single group.

pattern_matches   which topics the patterns of a shard's groups match, as far as the search has come
regex             RE2 with limits: is a pattern valid, and which names does it match
"""
