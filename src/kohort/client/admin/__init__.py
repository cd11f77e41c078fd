"""Topics, groups, transactions and settings, as an operator sees them; `Cluster` has a method for each call.

acls               create, list and delete ACLs
commit_metadata    what kohort's Spark source writes into the metadata of its commits: which query reads for the group
configs            the settings of topics and groups
end_times          an estimate of lag in time, from where the ends of logs were when
explanations       why a group is as it is: the journal that kohort keeps
groups             list, describe and delete groups; read and write committed offsets
lag                how far a group is behind, in records and in time
quotas             list and change what clients may use
open_transactions  what is open in partitions, and which of it hangs; abort it there
share_groups       share groups: offsets, lag, records in flight; release them, deliver them again
survey             many groups at once, in few requests
topics             list, create, grow and delete topics
users              list, add and delete users with SCRAM credentials
transactions       list and describe transactions; fence their producers
"""
