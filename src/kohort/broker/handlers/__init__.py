"""The handlers of requests, by subject: a function of the state, the request and its context returns the response.

metadata          Metadata, DescribeTopicPartitions
cluster           ApiVersions, FindCoordinator, DescribeCluster
groups            the APIs of classic groups, and ListGroups, DescribeGroups, DeleteGroups
consumer_groups   ConsumerGroupHeartbeat, ConsumerGroupDescribe
offsets           OffsetCommit, OffsetFetch, OffsetDelete
produce           Produce
fetch             Fetch, and fetches that wait for data
records           ListOffsets, OffsetForLeaderEpoch, DeleteRecords
producer_ids      InitProducerId
topics_admin      CreateTopics, DeleteTopics, CreatePartitions
configs           DescribeConfigs
config_changes    AlterConfigs, IncrementalAlterConfigs
config_resources  what has configs: topics, groups, brokers
inspection        DescribeLogDirs, DescribeQuorum, ListConfigResources, and lists that are always empty
leader_election   ElectLeaders
leaders           the leaders named in answers of NOT_LEADER_OR_FOLLOWER
"""
