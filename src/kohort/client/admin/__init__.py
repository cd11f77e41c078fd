"""Topics, groups and their settings, as an operator sees them; `Cluster` has a method for each call.

commit_metadata   what kohort's Spark source writes into the metadata of its commits: which query reads for the group
configs           the settings of topics and groups
explanations      why a group is as it is: the journal that kohort keeps
groups            list, describe and delete groups; read and write committed offsets
topics            list, create and delete topics
"""
