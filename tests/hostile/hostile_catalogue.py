"""The catalogue: hostile clients, each a row that says what it sends, how it reads, and how it goes.

The first part asks for large answers, the second sends frames that are no good, the third asks for work, and the fourth
makes the server keep state.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from itertools import cycle, repeat

from hostile_client import Client, End
from hostile_preparation import (
    CROWD,
    FULL,
    FULL_PARTITIONS,
    GROUPS,
    HEAVY,
    PRODUCER_IDS,
    PRODUCERS,
    TIMED,
    TIMED_PARTITIONS,
    TIMED_RECORDS,
    TOPICS,
    WIDE,
    WIDE_PARTITIONS,
    Preparation,
    group,
    transactional_id,
)
from hostile_preparation import topic as topic_name
from hostile_requests import (
    add_to_transaction,
    api_versions,
    bomb,
    commit,
    consumer_join,
    create_topics,
    end_transaction,
    fetch,
    fetch_offsets,
    frame,
    grow_topic,
    join,
    metadata,
    number,
    pending_offsets,
    produce,
    produce_batch,
    search_offsets,
)

from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.schemas.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_log_dirs import DescribeLogDirsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequestPartition
from kohort.wire.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MEGABYTE = 1_000_000
ONE = encode_batch([NewRecord(None, b"x", 1)])
SUBSCRIPTION = struct.pack(">hi", 0, 1) + struct.pack(">h4s", 4, b"wide") + struct.pack(">i", -1)


def all_of(*steps: Callable[[Preparation], None]) -> Callable[[Preparation], None]:
    def prepare(preparation: Preparation) -> None:
        for step in steps:
            step(preparation)

    return prepare


def prefix(length: int) -> bytes:
    return struct.pack(">i", length)


# -- what they send; `n` is the number of the connection


def offset_fetch_flood(n: int) -> Iterator[bytes]:
    yield fetch_offsets(HEAVY) * 200


def offset_fetch_repeated(n: int) -> Iterator[bytes]:
    yield fetch_offsets(HEAVY, times=12)


def offset_fetch_endless(n: int) -> Iterator[bytes]:
    return repeat(fetch_offsets(HEAVY))


def list_groups(n: int) -> Iterator[bytes]:
    return repeat(frame(ListGroupsRequest(), 4) * 100, 15)


def fetch_all(n: int) -> Iterator[bytes]:
    return repeat(fetch(FULL, range(FULL_PARTITIONS)), 20)


def fetch_endless(n: int) -> Iterator[bytes]:
    return repeat(fetch(FULL, range(FULL_PARTITIONS)))


def metadata_flood(n: int) -> Iterator[bytes]:
    return repeat(metadata() * 50)


def wide_metadata(n: int) -> Iterator[bytes]:
    return repeat(metadata(WIDE))


def api_versions_flood(n: int) -> Iterator[bytes]:
    return repeat(api_versions() * 500)


def describe_groups(n: int) -> Iterator[bytes]:
    names = tuple(group(number) for number in range(GROUPS))
    return repeat(frame(DescribeGroupsRequest(groups=names, include_authorized_operations=True), 5))


def describe_members(n: int) -> Iterator[bytes]:
    return repeat(frame(ConsumerGroupDescribeRequest(group_ids=(CROWD,)), 1))


def explain_groups(n: int) -> Iterator[bytes]:
    names = tuple(group(number) for number in range(GROUPS))
    return repeat(frame(DescribeGroupsRequest(groups=names, explain_last=50), 5))


def describe_configs(n: int) -> Iterator[bytes]:
    resources = tuple(
        DescribeConfigsResource(resource_type=2, resource_name=topic_name(n), configuration_keys=None)
        for n in range(10_000)
    )
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    return repeat(frame(request, 3))


def describe_log_dirs(n: int) -> Iterator[bytes]:
    return repeat(frame(DescribeLogDirsRequest(topics=None), 4))


def list_offsets(n: int) -> Iterator[bytes]:
    return repeat(search_offsets(WIDE, range(WIDE_PARTITIONS), -1))


def list_offsets_by_time(n: int) -> Iterator[bytes]:
    """Each partition once: a search reads the half of its batch."""
    return repeat(search_offsets(TIMED, range(TIMED_PARTITIONS), TIMED_RECORDS // 2))


def list_offsets_repeated(n: int) -> Iterator[bytes]:
    return repeat(search_offsets(FULL, (0,) * 20_000, 1))


def leader_epochs(n: int) -> Iterator[bytes]:
    partitions = (OffsetForLeaderPartition(partition=0, leader_epoch=0),) * 39_000
    return repeat(
        frame(OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic=WIDE, partitions=partitions),)), 3)
    )


def fetch_repeated(n: int) -> Iterator[bytes]:
    """The second connection wakes what the others wait for. The third keeps the limit of elements in a request."""
    if n == 1:
        return repeat(produce("small", 0, b"wake"))
    return repeat(fetch("small", (0,) * (39_000 if n else 250_000), version=4, wait_ms=30_000, offset=2**40))


def waiting_fetches(n: int) -> Iterator[bytes]:
    if n:
        yield fetch(WIDE, range(500), wait_ms=30_000)
    else:
        yield from repeat(produce(WIDE, 0, b"wake"))


def fetch_sessions(n: int) -> Iterator[bytes]:
    return repeat(fetch(WIDE, range(1_000), session_epoch=0))


def stalled_frame(n: int) -> Iterator[bytes]:
    yield prefix(100 * MEGABYTE) + bytes(95 * MEGABYTE)
    while True:
        yield from repeat(b"", 20)
        yield b"\0"


def half_frame(n: int) -> Iterator[bytes]:
    yield prefix(1_400_000) + bytes(700_000)


def byte_by_byte(n: int) -> Iterator[bytes]:
    data = metadata()
    return (data[at % len(data) : at % len(data) + 1] for at in range(1 << 40))


def bad_length(n: int) -> Iterator[bytes]:
    yield (prefix(-1), prefix(-(2**31)), prefix(2**31 - 1), prefix(104_857_601))[n % 4] + b"rest"


def empty_frames(n: int) -> Iterator[bytes]:
    return repeat(prefix(0) * 10_000)


def garbage(n: int) -> Iterator[bytes]:
    chance = random.Random(n)
    while True:
        data = bytearray(fetch_offsets(HEAVY, times=3))
        for _ in range(3):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        yield bytes(data)


def unknown_requests(n: int) -> Iterator[bytes]:
    chance = random.Random(n)
    while True:
        header = struct.pack(">hhih", chance.randrange(-5, 120), chance.randrange(-2, 40), 1, -1)
        yield prefix(len(header)) + header


def nothing_at_all(n: int) -> Iterator[bytes]:
    return iter(())


def join_new(n: int) -> Iterator[bytes]:
    yield join("stormed", SUBSCRIPTION, session_ms=10_000)


def join_static(n: int) -> Iterator[bytes]:
    yield join("fought-over", SUBSCRIPTION, instance=f"instance-{n % 3}", session_ms=10_000)


def never_sync(n: int) -> Iterator[bytes]:
    yield join(f"never-synced-{number() % 500}", SUBSCRIPTION, session_ms=6_000)


def big_member(n: int) -> Iterator[bytes]:
    yield join(f"big-{number()}", bytes(MEGABYTE))


def many_elements(n: int) -> Iterator[bytes]:
    """Requests of a megabyte in elements of a few bytes."""
    while True:
        yield frame(DescribeGroupsRequest(groups=("",) * 1_000_000), 5)
        yield frame(FindCoordinatorRequest(key_type=0, coordinator_keys=("",) * 1_000_000), 4)
        yield frame(
            ProduceRequest(acks=1, timeout_ms=1, topic_data=(TopicProduceData(name="", partition_data=()),) * 400_000),
            9,
        )


def wide_commits(n: int) -> Iterator[bytes]:
    """One step each, of as many partitions as a commit may have."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=p % WIDE_PARTITIONS, committed_offset=1) for p in range(10_000)
    )
    while True:
        yield commit(f"wide-{number()}", WIDE, partitions)


def wide_produce(n: int) -> Iterator[bytes]:
    data = TopicProduceData(
        name=WIDE, partition_data=tuple(PartitionProduceData(index=p, records=ONE) for p in range(WIDE_PARTITIONS))
    )
    return repeat(frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=(data,)), 9))


def other_codec(n: int) -> Iterator[bytes]:
    """Batches that the server compresses anew. They are smaller than message.max.bytes."""
    text = b"".join(b"%d,%d\n" % (at, at * 7_919 % 99_991) for at in range(300)) * 4_000
    topic = f"compressed-{n}"
    yield create_topics({topic: 1}, {"compression.type": "gzip"})
    yield from repeat(produce_batch(topic, 0, encode_batch([NewRecord(None, text, 1)], compression=3)))


def huge_subscription(n: int) -> Iterator[bytes]:
    """As many names as a member may have, of topics that do not exist: a few bytes each, and a place in two indexes."""
    while True:
        names = tuple(f"{number():x}" for _ in range(9_900))
        yield consumer_join(f"subscribed-{names[0]}", "member", topics=names)


LONG = "\N{GRINNING FACE}" * 7_000
"""28 kB in UTF-8, and 56 kB in memory."""


def long_names(n: int) -> Iterator[bytes]:
    while True:
        at = number()
        yield consumer_join(f"long-{at}{LONG}", f"member-{at}{LONG}", topics=("small",))
        yield join(f"long-classic-{at}{LONG}", b"", instance=f"instance-{at}{LONG}", session_ms=1_800_000)


def many_protocols(n: int) -> Iterator[bytes]:
    protocols = tuple(JoinGroupRequestProtocol(name=f"{at:x}", metadata=b"") for at in range(999))
    while True:
        request = JoinGroupRequest(
            group_id=f"protocols-{number()}",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            member_id="",
            group_instance_id="instance",
            protocol_type="many",
            protocols=protocols,
        )
        yield frame(request, 5)


def given_out_ids(n: int) -> Iterator[bytes]:
    """Each is valid for half an hour, and never used."""
    while True:
        request = JoinGroupRequest(
            group_id=f"given-out-{number() // 1_000}",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        yield encode_request(request, 5, 1, "c" * 30_000)


def emptied_groups(n: int) -> Iterator[bytes]:
    """Groups whose only member leaves; they stay until offsets are checked."""
    while True:
        names = [f"emptied-{number()}" for _ in range(50)]
        yield b"".join(consumer_join(name, "m") + consumer_join(name, "m", epoch=-1) for name in names)


REGEXES = ("(a+)+$", "(.*a){25}", "((a{0,100}){0,100}){0,100}", "(x+x+)+y", "(" * 500 + "a" + ")" * 500, "[a-z]*" * 300)


def regex_bomb(n: int) -> Iterator[bytes]:
    while True:
        at = number()
        yield consumer_join(f"pattern-{at % 50}", f"member-{at}", regex=REGEXES[at % len(REGEXES)] + f"|{at}")


def regex_for_all(n: int) -> Iterator[bytes]:
    while True:
        at = number()
        yield consumer_join(f"everything-{at % 500}", f"member-{at}", regex=f".*|{at}")


def consumer_storm(n: int) -> Iterator[bytes]:
    while True:
        yield consumer_join("consumer-storm", f"member-{number()}", topics=(WIDE,))


def wide_groups(n: int) -> Iterator[bytes]:
    """Each group's only member is assigned 8,000 partitions."""
    while True:
        yield consumer_join(f"wide-{number()}", "member", topics=(WIDE,))


def small_members(n: int) -> Iterator[bytes]:
    while True:
        yield b"".join(
            consumer_join(f"small-{number() % 500}", f"member-{number()}", topics=("small",)) for _ in range(50)
        )


def fenced_heartbeats(n: int) -> Iterator[bytes]:
    return repeat(consumer_join("fenced", f"nobody-{n}", epoch=7) * 200)


def big_commits(n: int) -> Iterator[bytes]:
    while True:
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=p, committed_offset=1, committed_metadata="m" * 4_096)
            for p in range(200)
        )
        yield commit(f"committed-{number()}", WIDE, partitions)


def many_groups(n: int) -> Iterator[bytes]:
    one = (OffsetCommitRequestPartition(partition_index=0, committed_offset=1),)
    while True:
        yield b"".join(commit(f"simple-{number()}", "small", one) for _ in range(50))


def delete_offsets(n: int) -> Iterator[bytes]:
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=p) for p in range(WIDE_PARTITIONS))
    topics = (OffsetDeleteRequestTopic(name=WIDE, partitions=partitions),)
    return repeat(frame(OffsetDeleteRequest(group_id=HEAVY, topics=topics), 0))


def delete_groups(n: int) -> Iterator[bytes]:
    return repeat(frame(DeleteGroupsRequest(groups_names=tuple(group(at) for at in range(GROUPS))), 1))


def topics_by_the_hundred(n: int) -> Iterator[bytes]:
    while True:
        yield create_topics({f"created-{number()}": 10 for _ in range(100)})


def topics_come_and_go(n: int) -> Iterator[bytes]:
    while True:
        names = tuple(f"passing-{number()}" for _ in range(50))
        yield create_topics(dict.fromkeys(names, 20))
        yield frame(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 4)


def large_topics(n: int) -> Iterator[bytes]:
    while True:
        name = f"large-{number()}"
        yield create_topics({name: 5_000})
        yield grow_topic(name, 10_000)
        yield frame(DeleteTopicsRequest(topic_names=(name,), timeout_ms=30_000), 4)


def topics_by_metadata(n: int) -> Iterator[bytes]:
    while True:
        yield metadata(*(f"asked-for-{number()}" for _ in range(500)), create=True)


def partitions_grow(n: int) -> Iterator[bytes]:
    name = f"growing-{number()}"
    yield create_topics({name: 1})
    for count in range(2, 100_000, 7):
        yield grow_topic(name, count)


def alter_configs(n: int) -> Iterator[bytes]:
    while True:
        resources = tuple(
            AlterConfigsResource(
                resource_type=2,
                resource_name=topic_name(at),
                configs=(AlterableConfig(name="retention.ms", value=str(1_000_000 + number())),),
            )
            for at in range(TOPICS)
        )
        yield frame(AlterConfigsRequest(resources=resources, validate_only=False), 1)


def produce_unanswered(n: int) -> Iterator[bytes]:
    return repeat(produce("small", 0, bytes(100_000), acks=0))


def tiny_batches(n: int) -> Iterator[bytes]:
    return repeat(produce("small", 0, b"x") * 200)


def gzip_bombs(n: int) -> Iterator[bytes]:
    return repeat(produce_batch("small", 0, bomb(1, (15 if n else 200) * MEGABYTE)))


def zstd_bombs(n: int) -> Iterator[bytes]:
    return repeat(produce_batch("small", 0, bomb(4, (15 if n else 200) * MEGABYTE)))


def producer_ids(n: int) -> Iterator[bytes]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    return repeat(frame(request, 1) * 200)


def many_transactions(n: int) -> Iterator[bytes]:
    """Transactions of many ids with pending offsets and partitions, all open at once, and ended at once."""
    mine = [(transactional_id(number), PRODUCER_IDS[number]) for number in range(n, PRODUCERS, 4)]
    begin = b"".join(
        pending_offsets(name, producer, f"hostile-group-{at % 20}", WIDE, range(100))
        + add_to_transaction(name, producer, WIDE, range(50))
        for at, (name, producer) in enumerate(mine)
    )
    for committed in cycle((True, False)):
        yield begin
        yield b"".join(end_transaction(name, producer, committed=committed) for name, producer in mine)


def wide_transactions(n: int) -> Iterator[bytes]:
    """One transaction with 16,000 pending offsets, and one with all partitions of a topic."""
    name, producer = transactional_id(n), PRODUCER_IDS[n]
    partitions = range(WIDE_PARTITIONS)
    begin = [pending_offsets(name, producer, f"hostile-group-{group}", WIDE, partitions) for group in range(2)]
    for committed in cycle((True, False)):
        yield from begin
        yield end_transaction(name, producer, committed=committed)
        yield add_to_transaction(name, producer, WIDE, partitions)
        yield end_transaction(name, producer, committed=committed)


def find_coordinators(n: int) -> Iterator[bytes]:
    keys = tuple(f"group-{at}" for at in range(39_000))
    return repeat(frame(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4))


def backlog(n: int) -> Iterator[bytes]:
    """All at once, and gone."""
    yield (fetch_offsets(HEAVY) + frame(ListGroupsRequest(), 4) + metadata()) * 300


# -- who they are

CATALOGUE: tuple[Client, ...] = (
    # Large answers
    Client(
        "offset-fetch-unread",
        "200 OffsetFetch of 20 MB on one connection, unread",
        offset_fetch_flood,
        prepare=Preparation.heavy,
        reads=0,
        short=True,
    ),
    Client(
        "offset-fetch-closed",
        "50 connections, one OffsetFetch of 400 MB each, closed at once",
        offset_fetch_repeated,
        prepare=Preparation.heavy,
        connections=50,
        reads=0,
        stays_s=0.3,
        short=True,
    ),
    Client(
        "offset-fetch-reset",
        "reads some of an OffsetFetch's 20 MB and resets the connection",
        offset_fetch_endless,
        prepare=Preparation.heavy,
        connections=5,
        reads=100_000,
        stays_s=0.2,
        ends=End.RESET,
    ),
    Client(
        "slow-readers",
        "50 connections, 20 pipelined Fetch of 55 MB each, read 64 kB at a time",
        fetch_all,
        prepare=Preparation.full,
        connections=50,
        reads=65_536,
        reads_every_s=0.15,
        short=True,
    ),
    Client(
        "fetch-unread",
        "20 connections that pipeline Fetch of 2^31-1 bytes and read nothing",
        fetch_endless,
        prepare=Preparation.full,
        connections=20,
        reads=0,
    ),
    Client(
        "pausing-readers",
        "5 connections that read 4 MB of large fetches and then nothing for a second",
        fetch_endless,
        prepare=Preparation.full,
        connections=5,
        reads=4 * MEGABYTE,
        reads_every_s=1.0,
    ),
    Client(
        "half-closed",
        "5 connections that send 20 large fetches, close their direction and read slowly",
        fetch_all,
        prepare=Preparation.full,
        connections=5,
        reads=65_536,
        reads_every_s=0.05,
        ends=End.HALF,
    ),
    Client(
        "metadata-unread",
        "Metadata of 2,000 topics, pipelined and unread",
        metadata_flood,
        prepare=Preparation.topics,
        connections=4,
        reads=0,
    ),
    Client(
        "api-versions-unread",
        "small answers by the hundred thousand, unread",
        api_versions_flood,
        connections=4,
        reads=0,
    ),
    Client("api-versions-flood", "ApiVersions as fast as it goes, read", api_versions_flood, connections=4),
    # Work
    Client(
        "list-groups-closed",
        "1,500 pipelined ListGroups over 5,000 groups, closed at once",
        list_groups,
        prepare=Preparation.groups,
        connections=2,
        reads=0,
        stays_s=0.5,
        short=True,
    ),
    Client(
        "backlog-closed",
        "900 pipelined requests with large answers on each of 20 connections, closed at once",
        backlog,
        prepare=all_of(Preparation.heavy, Preparation.groups),
        connections=20,
        reads=0,
        stays_s=0.5,
    ),
    Client(
        "fetch-repeated",
        "a 4 MB Fetch that names one partition 250,000 times and waits, and records that arrive there",
        fetch_repeated,
        prepare=Preparation.small,
        connections=3,
        pace_s=0.2,
        short=True,
    ),
    Client(
        "waiting-fetches",
        "400 fetches that wait for 500 partitions each, and records that wake them",
        waiting_fetches,
        prepare=Preparation.wide,
        connections=400,
        pace_s=0.1,
    ),
    Client(
        "fetch-sessions",
        "a fetch session of 1,000 partitions with each request",
        fetch_sessions,
        prepare=Preparation.wide,
        connections=4,
    ),
    Client(
        "describe-configs",
        "DescribeConfigs of 10,000 resources with documentation",
        describe_configs,
        prepare=Preparation.topics,
        connections=2,
        short=True,
    ),
    Client(
        "describe-groups", "DescribeGroups of 5,000 groups", describe_groups, prepare=Preparation.groups, short=True
    ),
    Client(
        "describe-members",
        "ConsumerGroupDescribe of a group with 3,000 members",
        describe_members,
        prepare=Preparation.crowd,
        connections=2,
    ),
    Client(
        "explain-groups",
        "DescribeGroups of 5,000 groups with 50 stories each",
        explain_groups,
        prepare=Preparation.groups,
        connections=2,
    ),
    Client(
        "list-offsets",
        "ListOffsets of 8,000 partitions",
        list_offsets,
        prepare=Preparation.wide,
        connections=2,
        short=True,
    ),
    Client(
        "list-offsets-by-time",
        "ListOffsets that searches 1,000 partitions by time",
        list_offsets_by_time,
        prepare=Preparation.timed,
        connections=2,
    ),
    Client(
        "list-offsets-repeated",
        "ListOffsets that names one partition 20,000 times",
        list_offsets_repeated,
        prepare=Preparation.full,
    ),
    Client(
        "wide-metadata",
        "200 connections that ask for a topic of 8,000 partitions",
        wide_metadata,
        prepare=Preparation.wide,
        connections=200,
    ),
    Client(
        "leader-epochs",
        "OffsetForLeaderEpoch that names one partition 39,000 times",
        leader_epochs,
        prepare=Preparation.wide,
    ),
    Client(
        "describe-log-dirs",
        "DescribeLogDirs of everything",
        describe_log_dirs,
        prepare=all_of(Preparation.wide, Preparation.topics),
        connections=2,
    ),
    Client("many-elements", "requests of a million elements", many_elements, connections=4, short=True),
    Client("wide-commits", "OffsetCommit of 10,000 partitions", wide_commits, prepare=Preparation.wide, connections=2),
    Client("wide-produce", "Produce to 8,000 partitions", wide_produce, prepare=Preparation.wide, connections=2),
    Client("other-codec", "batches of 11 MB in lz4 that the server compresses with gzip", other_codec, connections=4),
    Client("find-coordinators", "FindCoordinator of 39,000 keys", find_coordinators, connections=2),
    # Frames
    Client("connections", "connects and goes, as fast as it can", nothing_at_all, connections=100, stays_s=0.01),
    Client("silent", "3,000 connections that say nothing", nothing_at_all, connections=3_000),
    Client(
        "byte-by-byte",
        "200 connections that send a byte at a time",
        byte_by_byte,
        connections=200,
        pace_s=0.02,
        short=True,
    ),
    Client(
        "stalled-frames",
        "3 connections that send 95 of 100 MB and then a byte a second",
        stalled_frame,
        connections=3,
        pace_s=0.05,
        short=True,
    ),
    Client(
        "half-frames",
        "400 connections that send half of a frame of 1.4 MB",
        half_frame,
        connections=400,
        short=True,
    ),
    Client("bad-lengths", "negative and huge lengths of frames", bad_length, connections=20),
    Client(
        "empty-frames",
        "frames without a byte",
        empty_frames,
        connections=4,
    ),
    Client("garbage", "requests with some wrong bytes", garbage, connections=10, prepare=Preparation.wide),
    Client("unknown-requests", "APIs and versions that do not exist", unknown_requests, connections=10),
    # Members
    Client(
        "join-storm",
        "new members of one group, which go before they are answered",
        join_new,
        connections=20,
        stays_s=0.1,
    ),
    Client("static-fight", "60 processes with 3 instance ids in one group", join_static, connections=60, stays_s=0.5),
    Client("never-sync", "members that never send SyncGroup", never_sync, connections=50, stays_s=0.5),
    Client(
        "big-members",
        "groups with a member of 1 MB of metadata each",
        big_member,
        connections=20,
        stays_s=0.1,
        short=True,
    ),
    Client(
        "huge-subscriptions",
        "consumers that subscribe to 9,900 topics that do not exist",
        huge_subscription,
        connections=4,
    ),
    Client(
        "long-names",
        "groups, members and instances with names of 56 kB",
        long_names,
        prepare=Preparation.small,
        connections=4,
    ),
    Client("many-protocols", "members with 999 protocols each", many_protocols, connections=4),
    Client("given-out-ids", "member ids that are given out and never used", given_out_ids, connections=4),
    Client("emptied-groups", "groups whose only member leaves", emptied_groups, connections=4),
    Client(
        "regexes",
        "expressions that backtrack or grow, in 50 groups",
        regex_bomb,
        prepare=Preparation.topics,
        connections=4,
        short=True,
    ),
    Client(
        "regexes-for-all",
        "expressions that match all of 2,000 topics, in 500 groups",
        regex_for_all,
        prepare=Preparation.topics,
        connections=4,
    ),
    Client(
        "consumer-storm",
        "new members of one consumer group over 8,000 partitions",
        consumer_storm,
        prepare=Preparation.wide,
        connections=4,
    ),
    Client(
        "wide-groups",
        "groups whose only member is assigned 8,000 partitions",
        wide_groups,
        prepare=Preparation.wide,
        connections=4,
    ),
    Client("fenced-heartbeats", "heartbeats of members that there are not", fenced_heartbeats, connections=4),
    # State
    Client(
        "big-commits",
        "groups with 800 kB of metadata in their offsets",
        big_commits,
        prepare=Preparation.wide,
        connections=4,
    ),
    Client(
        "small-members",
        "members of consumer groups, one after the other on few connections",
        small_members,
        prepare=Preparation.small,
        connections=4,
    ),
    Client("many-groups", "groups with one offset, as fast as it goes", many_groups, prepare=Preparation.small),
    Client(
        "delete-offsets", "OffsetDelete of 8,000 partitions", delete_offsets, prepare=Preparation.heavy, connections=2
    ),
    Client("delete-groups", "DeleteGroups of 5,000 groups", delete_groups, prepare=Preparation.groups, connections=2),
    Client("create-topics", "100 topics of 10 partitions with each request", topics_by_the_hundred, connections=2),
    Client("topics-come-and-go", "50 topics of 20 partitions, created and deleted", topics_come_and_go),
    Client("large-topics", "topics of 5,000 partitions, created, doubled and deleted", large_topics, connections=2),
    Client("topics-by-metadata", "500 topics that Metadata creates", topics_by_metadata, connections=2),
    Client("partitions-grow", "CreatePartitions, a few more each time", partitions_grow, connections=4),
    Client("alter-configs", "AlterConfigs of 2,000 topics", alter_configs, prepare=Preparation.topics, connections=2),
    Client(
        "produce-unanswered",
        "batches of 100 kB to one partition with acks=0",
        produce_unanswered,
        prepare=Preparation.small,
        connections=4,
    ),
    Client("tiny-batches", "batches of one byte, pipelined, unread", tiny_batches, prepare=Preparation.small, reads=0),
    Client(
        "gzip-bombs",
        "batches of 15 MB and 200 MB of zeros in gzip",
        gzip_bombs,
        prepare=Preparation.small,
        connections=4,
        short=True,
    ),
    Client(
        "zstd-bombs",
        "batches of 15 MB and 200 MB of zeros in zstd",
        zstd_bombs,
        prepare=Preparation.small,
        connections=4,
    ),
    Client("producer-ids", "InitProducerId as fast as it goes", producer_ids, connections=4),
    Client(
        "many-transactions",
        "400 transactions with 100 pending offsets and 50 partitions each, open at once and ended at once",
        many_transactions,
        prepare=Preparation.producers,
        connections=4,
    ),
    Client(
        "wide-transactions",
        "transactions with 16,000 pending offsets, and with 8,000 partitions",
        wide_transactions,
        prepare=Preparation.producers,
        connections=2,
    ),
)
BY_NAME = {client.name: client for client in CATALOGUE}
