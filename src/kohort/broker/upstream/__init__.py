"""A gateway's view of the cluster before which it stands (docs/decisions/0019).

following   topics, partitions, racks and ends of logs, taken over from events of the edge
"""
