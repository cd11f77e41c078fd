"""Work queues on share groups (KIP-932): `WorkQueue` for asyncio, `BlockingWorkQueue` for threads.

docs/how-to/work-queues.md shows their use, docs/decisions/0022-work-queues-are-share-members.md why they are built so.

acquired        the records of a fetch that were acquired, and the gaps between them
backlog         which job and which topic is next, without IO
blocking        BlockingWorkQueue, for threads
broker_session  a share session on an event loop: fetches, acknowledgements, renewals
dead_letters    the record of a job that failed for good
delay_mover     moves delayed jobs when their time has come, on one worker of the group
delays          delayed jobs as records
job             Job, and the exceptions that give it an outcome
options         the settings
permits         how many jobs the whole group works on
puts            puts records into topics, from an event loop
remaining       how much of a queue is left
set_up          topics, and the settings of the group
share_member    the membership, and a session with each broker
share_session   a share session without IO
work_queue      WorkQueue
worker          which job is next, and what becomes of each
"""
