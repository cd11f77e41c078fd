"""`kohort groups`.

app          list and describe; registers the other commands
explain      the timeline of a group's rebalances
timeline     one story, and the running rebalance, as lines
standings    over all stories: the worst offenders, who owns what since when
last_owners  partitions that nobody has: their last owners, and what became of them
watch/       lag, rates and rebalances, live
doctor/      what is wrong with groups, for people and monitors
wording      durations, partitions, names of members
subjects     what a group of another protocol type is about: elections, shardings, Connect, schema registries
reset        reset-offsets
restore      restore: offsets that were reset, deleted or have expired
undo         the command that undoes a change
delete       delete, delete-offsets
remove_member  remove-member
transfer     export, import
lookup       groups that are about to be changed: do they exist, may they be changed
offset_plan  what would happen to a group's offsets: table, preview, how to undo it
offset_files  files of offsets: JSON, and the CSV of Kafka's tool
settings     configs, hold; the end of a hold
shares/      share groups: describe, reset-offsets, release, redeliver, delete-offsets, findings
assign       a dry run of an assignor
group_specs  a running group as an assignor sees it
"""
