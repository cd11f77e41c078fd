"""The journal at the broker.

topic         the topic `__kohort_journal`: written with each turn, read at a start
explanations  the stories and the rebalance of a group, added to its description
"""
