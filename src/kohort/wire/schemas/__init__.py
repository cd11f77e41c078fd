"""The schema tables: one file an API, a class for each message; the classes serve all versions.

add_partitions_to_txn      AddPartitionsToTxn (API key 24)
alter_configs              AlterConfigs (API key 33)
api_versions               ApiVersions (API key 18)
assignor_user_data         user data of Kafka's `sticky` assignor
consumer_group_describe    ConsumerGroupDescribe (API key 69)
consumer_group_heartbeat   ConsumerGroupHeartbeat (API key 68)
consumer_protocol          what consumers carry inside JoinGroup and SyncGroup
create_partitions          CreatePartitions (API key 37)
create_topics              CreateTopics (API key 19)
delete_groups              DeleteGroups (API key 42)
delete_records             DeleteRecords (API key 21)
delete_topics              DeleteTopics (API key 20)
describe_cluster           DescribeCluster (API key 60)
describe_configs           DescribeConfigs (API key 32)
describe_groups            DescribeGroups (API key 15)
describe_topic_partitions  DescribeTopicPartitions (API key 75)
end_txn                    EndTxn (API key 26)
fetch                      Fetch (API key 1)
find_coordinator           FindCoordinator (API key 10)
group_records              records of the `__consumer_offsets` log, in Kafka's schema
headers                    Request and response headers
heartbeat                  Heartbeat (API key 12)
incremental_alter_configs  IncrementalAlterConfigs (API key 44)
init_producer_id           InitProducerId (API key 22)
join_group                 JoinGroup (API key 11)
leave_group                LeaveGroup (API key 13)
list_groups                ListGroups (API key 16)
list_offsets               ListOffsets (API key 2)
metadata                   Metadata (API key 3)
metadata_records           records of kohort's own metadata log
offset_commit              OffsetCommit (API key 8)
offset_delete              OffsetDelete (API key 47)
offset_fetch               OffsetFetch (API key 9)
offset_for_leader_epoch    OffsetForLeaderEpoch (API key 23)
produce                    Produce (API key 0)
sasl_authenticate          SaslAuthenticate (API key 36)
sasl_handshake             SaslHandshake (API key 17)
sync_group                 SyncGroup (API key 14)
"""
