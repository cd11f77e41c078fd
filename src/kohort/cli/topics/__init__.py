"""`kohort topics`.

app             create, list, describe, delete; registers the other commands
alter           settings, and more partitions
delete_records  delete the records before an offset or a time
"""
