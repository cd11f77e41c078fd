"""Assignors of consumer groups (KIP-848): which member shall own which partitions. `spec.py` is the interface."""
