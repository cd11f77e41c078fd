"""Changes: each one is a form, a plan that shows what it would do, a confirmation, and an outcome.

plan       a planned change; the plans that wait for a confirmation
offsets    reset, restore and delete committed offsets
groups     delete a group, remove members
shares     release records of a share group, deliver archived ones again
topics     create and delete a topic, change its settings, add partitions
kinds      the table of all changes
screens    the pages: form, plan, outcome
"""
