"""What each API asks the authorizer before its handler runs, and what the answer is if that is denied.

A guard gets a request and returns a verdict (`ask.Verdict`): the request is handled as it is; or it is refused as a
whole; or it is handled without the names that are denied, and the answer gets their rows. Nothing is looked up by a
name that is denied, so an answer does not tell whether it exists. Rules and answers are those of Kafka (KafkaApis,
ControllerApis, AclApis, ConfigHelper).

ask           a request's questions to the authorizer; verdicts
rows          guards of requests that are lists of topics
topics        Metadata, DescribeTopicPartitions, CreateTopics, DeleteTopics, CreatePartitions
records       Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers
groups        the APIs of groups
offsets       OffsetCommit, OffsetFetch, OffsetDelete
shares        the APIs of share groups
transactions  the APIs of transactional producers
cluster       APIs about the cluster, and its configs
table         the guard of each API
guarded       runs guard and handler; checks again what has waited
"""
