"""The handlers of requests, by subject: a function of the state, the request and its context returns the response.

metadata               Metadata, DescribeTopicPartitions
cluster                ApiVersions, FindCoordinator, DescribeCluster
groups                 the APIs of classic groups, and ListGroups, DescribeGroups, DeleteGroups
consumer_groups        ConsumerGroupHeartbeat, ConsumerGroupDescribe
offsets                OffsetCommit, OffsetFetch, OffsetDelete
transactional_offsets  TxnOffsetCommit
produce                Produce
transactional_produce  what Produce asks the transaction coordinator
fetch                  Fetch, and fetches that wait for data
records                ListOffsets, OffsetForLeaderEpoch, DeleteRecords
producer_ids           InitProducerId
transactions           AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers
transaction_lists      DescribeTransactions, ListTransactions
describe_producers     DescribeProducers
topics_admin           CreateTopics, DeleteTopics, CreatePartitions
configs                DescribeConfigs
config_changes         AlterConfigs, IncrementalAlterConfigs
config_resources       what has configs: topics, groups, brokers
acls                   DescribeAcls, CreateAcls, DeleteAcls
inspection             DescribeLogDirs, DescribeQuorum, ListConfigResources, and lists that are always empty
shares/                the APIs of share groups
security/              quotas, SCRAM credentials, and SASL where it does not belong
leader_election        ElectLeaders
leaders                the leaders named in answers of NOT_LEADER_OR_FOLLOWER
"""
