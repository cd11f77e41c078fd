"""Assignors of consumer groups (KIP-848): they compute the target assignment of a group.

spec         the interface of assignors: GroupSpec, Assignment, Assignor
registry     the built-in assignors by name, and which plug-ins are added
check        the check of an assignor's answer
dry_run      what an assignor would move
uniform      even and sticky
rack         even, and near where balance allows it
range        co-partitioned runs
lag          even sums of lag
placement    balanced and sticky placement of partitions, with or without racks
balance      how many partitions of which kind each group of members gets
group_index  a group with indexes instead of names
"""
