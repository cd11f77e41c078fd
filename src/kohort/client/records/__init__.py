"""Produce and fetch requests to the leaders of partitions, and the records in fetch responses.

fetched_records     records out of fetched batches; the next position
moments             times and ends, as ListOffsets knows them
partition_leaders   ListOffsets, Produce, Fetch and DeleteRecords at the leaders
partitioner         the partition of a key, as Kafka's Java producer chooses it
"""

from __future__ import annotations

from kohort.client.records.fetched_records import FetchedRecord, data_batches, next_position, records
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember

__all__ = ["FetchedPartition", "FetchedRecord", "GroupMember", "data_batches", "next_position", "records"]
