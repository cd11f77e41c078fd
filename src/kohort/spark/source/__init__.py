"""`format("kohort")` for reading: planning in the query's planning process, reading in Python workers.

data_source     what Spark creates: schema, readers, writers; the batch reader
stream_reader   streaming reads of a query that commits to its group
member/         streaming reads of a query that is a member of its group
filters         what the filters of a batch read leave of it
bounds          where a query starts and a batch read ends
planner         what planning asks the cluster
positions       positions, their JSON, a batch's end and tasks: pure functions
pacing          what both streaming readers share: when the next micro-batch comes, and how large it is
tasks           a batch's tasks, on both sides
read            one task: a range of offsets as Arrow record batches
commits         commits to the group
identity        how the planning process learns which query it plans
checkpoint      what the query's checkpoint says
termination     the end of a planning process
"""
