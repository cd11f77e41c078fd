"""The broker: takes requests, decides with the coordinator's shards, and returns what a turn must make durable.

ARCHITECTURE.md says how to add an API.

apis             the table of APIs
authorization    who asks; operations, resources, and the authorizer
broker           `Broker`: the order of a turn, and of each connection's requests and responses
connection       what the broker knows of a connection
decoding         frames to requests
ready            which connection is next, and the budget of a turn
works            answers that are made in steps: their memory, over all connections
error_answers    the answer of any API that says one error
answers          responses to bytes, in steps if they are long
request          a request besides its body; a handler's results besides an answer
state            `BrokerState`: what handlers see, in these parts:
  topics/        topics and their partitions
  group_shards   the shards of the group coordinator
  transactions/  the shards of the transaction coordinator, and their markers
  machines       all state machines, each with the log that it owns
  turn_builder   the turn that is being built
turn             what crosses between the engine and its edges
turn_schedule    when a turn begins, commits and releases, without IO
start            from stored logs to a running state; the records of the first turn
sharing/         nodes that serve at once: slots, the controller
moves            moves leadership between the brokers of the process
nodes            the brokers of the process, as clients see them
upkeep           retention, compaction and expiry, a bounded piece a turn
messages         copies of frozen messages
change_log       the audit: a line in the server's log for each change
handlers/        one function an API
security/        ACLs, and what each API asks before its handler runs
quotas/          client quotas: what clients have used, and mutes of those above it
shortcuts/       cached answers to repeated heartbeats and commits
logs/            a partition's log: what may be appended, read, retained, compacted
waits/           fetches that wait for data; deadlines of the state machines
journal/         the journal in its topic, and in answers
lag/             how far groups are behind, in time too
upstream/        a gateway: the topics and racks of the cluster before which it stands
metrics/         the numbers of /metrics, read from the state between turns
backups/         stored data without a server: verified, and made ready for a restored directory
"""
