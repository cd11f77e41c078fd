"""`groupMode=member`: a streaming query as a member of its group.

reader       the streaming read that Spark calls
membership   joins, commits finished batches, gives partitions up, leaves
sharing      what the query may read and has read, without IO
refusals     partitions that the group refused to a batch's tasks
consumer     the client library's consumer with the query's settings
"""
