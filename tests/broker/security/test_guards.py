"""The checks of each API: what it asks, and what it answers when that is denied."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from acl_driver import DENY, PREFIXED, ROOT, Secured, acl
from group_driver import commit_request, consumer_join, stable
from test_apis import requests
from wire_driver import batch, fetch_request, produce_request

from kohort.broker.apis import APIS
from kohort.broker.authorization import NOT_ASKED, Need, Operation, Resource
from kohort.broker.messages import changed
from kohort.broker.security.authorizer import Rights
from kohort.broker.security.guards import groups, offsets, records, shares, topics, transactions
from kohort.broker.security.guards.rows import NEVER, TopicRows
from kohort.broker.security.guards.table import GUARDS
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_cluster import DescribeClusterRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kohort.wire.schemas.fetch import FetchingMember, FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

_O, _R = Operation, Resource
GROUP_DENIED, TOPIC_DENIED, CLUSTER_DENIED, ID_DENIED = 30, 29, 31, 53
EVERYBODY = {"ApiVersions", "SaslAuthenticate", "SaslHandshake"}
"""The APIs that ask nothing."""
ONLY_OPERATIONS = {"DescribeCluster"}
"""Asks about the operations that are allowed, if its request wants to know."""
SILENT = {"ListGroups", "ListTransactions", *ONLY_OPERATIONS}
"""Their answers have no error: what is denied is left out."""


# -- no API can be forgotten


def flat(needs: tuple[Need, ...]) -> set[tuple[Operation, Resource]]:
    found: set[tuple[Operation, Resource]] = set()
    for need in needs:
        one: Need | None = need
        while one is not None:
            found.add((one.operation, one.resource))
            one = one.instead
    return found


def test_every_api_has_a_guard() -> None:
    assert set(GUARDS) == set(APIS)
    assert {APIS[key].name for key, guard in GUARDS.items() if guard.__name__ == "everybody"} == EVERYBODY


def test_guards_of_topics_know_the_versions_that_name_them_by_id() -> None:
    """Where the name on the wire is empty, rules about topics would be compared with it."""
    modules = (groups, offsets, records, shares, topics, transactions)
    rows = {id(found): found for module in modules for found in vars(module).values() if isinstance(found, TopicRows)}
    assert len(rows) >= 7
    for found in rows.values():
        if found in (topics.CREATED, shares.ALTERED, shares.DELETED):
            continue  # the answer tells the topic's id, besides its name
        answer = getattr(found.answer, "func", found.answer)
        [row, _] = get_args(get_type_hints(answer)[found.answered])
        assert ("topic_id" in row.__struct_fields__) == (found.ids_from < NEVER), row


class Recorder:
    """What the authorizer is asked while it denies everything, or allows all operations, or all but one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: set[tuple[Operation, Resource]] = set()
        self.allows: str | None = "all"
        monkeypatch.setattr(Rights, "allows", lambda rights, *need: self._allows(*need))
        monkeypatch.setattr(Rights, "allows_any", lambda rights, *need: self._allows(*need, "*"))

    def _allows(self, operation: Operation, resource: Resource, name: str) -> bool:
        self.asked.add((operation, resource))
        return self.allows == "all" or (self.allows is not None and self.allows != f"all but {operation.name}")


def variants(api: Any, version: int, topic_id: bytes) -> list[Any]:
    """Requests of an API that make its guard ask all its questions."""
    [request] = [request for request in requests("t") if type(request) is api.request]
    match api.name:
        case "Metadata":
            return [request, MetadataRequest(topics=(MetadataRequestTopic(name="new"),))]
        case "Produce":
            records = batch("a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
            found = [request, changed(produce_request("t", records), transactional_id="x")]
            return [
                changed(one, topic_data=tuple(changed(topic, topic_id=topic_id) for topic in one.topic_data))
                for one in found
            ]
        case "TxnOffsetCommit" if version >= 6:
            [topic] = request.topics
            return [changed(request, topics=(changed(topic, name="", topic_id=topic_id),))]
        case "ShareFetch":
            [topic] = request.topics
            fetched = tuple(changed(one, acknowledgement_batches=()) for one in topic.partitions)
            return [changed(request, topics=(changed(topic, topic_id=topic_id, partitions=fetched),))]
        case "ShareAcknowledge":
            [topic] = request.topics
            [opens] = [one for one in requests("t") if type(one).__name__ == "ShareFetchRequest"]
            return [opens, changed(request, topics=(changed(topic, topic_id=topic_id),))]
        case "Fetch" if version >= 13:
            [topic] = request.topics
            return [changed(request, topics=(changed(topic, topic_id=topic_id),))]
        case "FindCoordinator" if version >= 1:
            return [request, changed(request, key_type=1), changed(request, key_type=2)]
        case "InitProducerId":
            return [request, changed(request, transactional_id="x")]
        case "DescribeCluster":
            return [changed(request, include_cluster_authorized_operations=True)]
        case "DescribeConfigs" | "AlterConfigs" | "IncrementalAlterConfigs":
            [resource] = request.resources
            of_others = [
                changed(resource, resource_type=kind, resource_name=name) for kind, name in ((4, "1"), (32, "g"))
            ]
            return [request, *(changed(request, resources=(one,)) for one in of_others)]
    return [request]


WITHOUT_ERROR = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
"""Versions whose answer has no place for the error."""
BESIDES: dict[str, set[tuple[Operation, Resource]]] = {
    "CreateTopics": {(_O.DESCRIBE_CONFIGS, _R.TOPIC)},
    "DeleteTopics": {(_O.DESCRIBE, _R.TOPIC)},
    "DescribeCluster": {(operation, _R.CLUSTER) for operation in Operation},
    "DescribeGroups": {(_O.DESCRIBE, _R.CLUSTER)},
    "DescribeTransactions": {(_O.DESCRIBE, _R.CLUSTER)},
    "DescribeTopicPartitions": {(operation, _R.TOPIC) for operation in Operation},
}
"""Questions whose answer decides how much is told, and refuses nothing."""
OF_WHAT_IS_THERE: dict[str, set[tuple[Operation, Resource]]] = {
    "ConsumerGroupDescribe": {(_O.DESCRIBE, _R.TOPIC)},
    "DescribeTransactions": {(_O.DESCRIBE, _R.TOPIC)},
    "ShareGroupDescribe": {(_O.DESCRIBE, _R.TOPIC)},
    "ListGroups": {(_O.DESCRIBE, _R.GROUP)},
    "ListTransactions": {(_O.DESCRIBE, _R.TRANSACTIONAL_ID)},
}
"""Questions about the members and transactions that are found; tests below."""


@pytest.mark.conformance("A8", "D4")
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_api_asks_what_it_says_and_refuses(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The questions of an API are those of its row in apis.py, whether they are allowed or denied."""
    secured = Secured(group_share_enable=True)
    topic_id = secured.root.create_topic("t")
    client = secured.connect("a")
    recorder = Recorder(monkeypatch)
    for version in range(api.first, api.last + 1):
        for allows in (None, "all but CREATE", "all"):
            recorder.allows = allows
            for request in variants(api, version, topic_id):
                answer = client.ask(request, version)
                if allows is None and api.name not in EVERYBODY | SILENT and (api.name, version) not in WITHOUT_ERROR:
                    assert errors(answer) & {GROUP_DENIED, TOPIC_DENIED, CLUSTER_DENIED, ID_DENIED}, (version, answer)
    needs = flat(api.needs)
    assert needs - OF_WHAT_IS_THERE.get(api.name, set()) <= recorder.asked
    assert recorder.asked <= needs | BESIDES.get(api.name, set())


def errors(answer: Any) -> set[int]:
    """All error codes in an answer."""
    found: set[int] = set()
    if isinstance(answer, tuple):
        for part in answer:
            found |= errors(part)
    for name in getattr(answer, "__struct_fields__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.add(value)
        else:
            found |= errors(value)
    return found


# -- what the answers tell


def error_of(answer: Any, *path: Any) -> int:
    for step in path:
        answer = answer[step] if isinstance(step, int) else getattr(answer, step)
    found: int = answer.error_code
    return found


@pytest.fixture
def secured() -> Secured:
    found = Secured()
    for name in ("seen", "hidden"):
        found.root.create_topic(name)
    found.allow("User:a", _O.DESCRIBE, _R.TOPIC, "seen")
    return found


@pytest.mark.conformance("A8")
def test_metadata_tells_of_topics_that_one_may_describe(secured: Secured) -> None:
    client = secured.connect("a")
    ids = {topic.name: topic.topic_id for topic in secured.root.ask(MetadataRequest(topics=None), 12).topics}
    for version in (0, 1, 12):
        everything = MetadataRequest(topics=None if version else ())
        assert [topic.name for topic in client.ask(everything, version).topics] == ["seen"]
    named = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in ("seen", "hidden", "absent")))
    rows = {topic.name: topic for topic in client.ask(named, 12).topics}
    assert {name: row.error_code for name, row in rows.items()} == {"seen": 0, "hidden": 29, "absent": 29}
    for name in ("hidden", "absent"):
        assert (rows[name].topic_id, rows[name].partitions, rows[name].is_internal) == (bytes(16), (), False)
    by_id = MetadataRequest(topics=(MetadataRequestTopic(topic_id=ids["hidden"], name=None),))
    [row] = client.ask(by_id, 12).topics
    assert (row.error_code, row.name, row.topic_id) == (29, None, ids["hidden"])
    unknown = MetadataRequest(topics=(MetadataRequestTopic(topic_id=b"?" * 16, name=None),))
    assert client.ask(unknown, 12).topics[0].error_code == 100


def test_a_version_0_metadata_of_denied_topics_alone_is_not_one_of_all(secured: Secured) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="hidden"),))
    answer = secured.connect("a").ask(request, 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("hidden", 29)]
    assert answer.brokers


@pytest.mark.conformance("A8")
def test_metadata_creates_topics_for_those_who_may(secured: Secured) -> None:
    secured.allow("User:a", _O.DESCRIBE, _R.TOPIC, "new", pattern=PREFIXED)
    secured.allow("User:a", _O.CREATE, _R.TOPIC, "new-1")
    client = secured.connect("a")
    names = ("new-1", "new-2")
    answer = client.ask(MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names)), 9)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"new-1": 0, "new-2": 29}
    assert secured.wire.broker.state.topic("new-2") is None
    secured.allow("User:a", _O.CREATE, _R.CLUSTER)
    answer = client.ask(MetadataRequest(topics=(MetadataRequestTopic(name="new-2"),)), 9)
    assert answer.topics[0].error_code == 0


@pytest.mark.conformance("A8")
def test_describe_topic_partitions_leaves_out_and_its_cursor_names_nothing_hidden() -> None:
    secured = Secured()
    for name in ("a", "b", "c", "d"):
        secured.root.create_topic(name)
    for name in ("a", "d"):
        secured.allow("User:a", _O.DESCRIBE, _R.TOPIC, name)
    client = secured.connect("a")

    def pages(cursor: Cursor | None) -> list[str | None]:
        found: list[str | None] = []
        while True:
            request = DescribeTopicPartitionsRequest(topics=(), response_partition_limit=1, cursor=cursor)
            answer = client.ask(request, 0)
            found += [topic.name for topic in answer.topics]
            cursor = answer.next_cursor
            if cursor is None:
                return found
            assert cursor.topic_name in ("a", "d")

    assert pages(None) == ["a", "d"]
    assert pages(Cursor(topic_name="b", partition_index=0)) == ["d"]
    assert pages(Cursor(topic_name="zz", partition_index=0)) == []


@pytest.mark.conformance("A5")
def test_authorized_operations() -> None:
    secured = Secured()
    secured.root.create_topic("t")
    stable(secured.root)
    secured.allow("User:a", _O.READ, _R.TOPIC, "t")
    secured.allow("User:a", _O.READ, _R.GROUP, "g")
    secured.allow("User:b", 2, _R.TOPIC, "t")
    secured.allow("User:b", _O.DESCRIBE, _R.CLUSTER)
    read = 1 << _O.READ | 1 << _O.DESCRIBE
    metadata = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    groups = DescribeGroupsRequest(groups=("g",), include_authorized_operations=True)
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    expected = {"a": (read, 0, read), "b": (3576, 1 << _O.DESCRIBE, NOT_ASKED), ROOT: (3576, 8096, 3400)}
    for user, (topic_bits, cluster_bits, group_bits) in expected.items():
        client = secured.connect(user)
        answer = client.ask(metadata, 10)
        [topic] = [topic for topic in answer.topics if topic.name == "t"]
        assert (topic.topic_authorized_operations, answer.cluster_authorized_operations) == (topic_bits, cluster_bits)
        assert client.ask(cluster, 0).cluster_authorized_operations == cluster_bits
        assert client.ask(groups, 3).groups[0].authorized_operations == group_bits
        [described] = client.ask(DescribeTopicPartitionsRequest(topics=()), 0).topics[-1:]
        assert described.topic_authorized_operations == topic_bits
    plain = secured.connect("a").ask(MetadataRequest(topics=None), 10)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED


@pytest.mark.conformance("A8")
def test_topics_are_deleted_by_those_who_may() -> None:
    secured = Secured()
    ids = {name: secured.root.create_topic(name) for name in ("mine", "seen", "hidden", "mine-2")}
    for name in ("mine", "mine-2"):
        secured.allow("User:a", _O.DELETE, _R.TOPIC, name)
    secured.allow("User:a", _O.DELETE, _R.TOPIC, "gone")
    secured.allow("User:a", _O.DESCRIBE, _R.TOPIC, "seen")
    client = secured.connect("a")
    asked = DeleteTopicsRequest(
        topics=(
            *(DeleteTopicState(topic_id=ids[name]) for name in ("mine", "seen", "hidden")),
            *(DeleteTopicState(name=name) for name in ("mine-2", "gone", "hidden", "absent")),
        ),
        timeout_ms=1,
    )
    rows = client.ask(asked, 6).responses
    found = {(row.name, row.topic_id): row.error_code for row in rows}
    none = bytes(16)
    assert found == {
        ("mine", ids["mine"]): 0,
        ("seen", ids["seen"]): 29,
        (None, ids["hidden"]): 29,
        ("mine-2", ids["mine-2"]): 0,
        ("gone", none): 3,
        ("hidden", none): 29,
        ("absent", none): 29,
    }
    orders = {
        tuple(row.name for row in client.ask(changed(asked, topics=asked.topics[3:]), 6).responses) for _ in range(30)
    }
    assert len(orders) > 1, "the answers are shuffled"


def test_create_topics_tells_configs_to_those_who_may_describe_them() -> None:
    secured = Secured()
    secured.allow("User:a", _O.CREATE, _R.TOPIC, "new", pattern=PREFIXED)
    secured.allow("User:a", _O.DESCRIBE_CONFIGS, _R.TOPIC, "new-2")
    names = ("new-1", "new-2", "other")
    topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names)
    rows = {row.name: row for row in secured.connect("a").ask(CreateTopicsRequest(topics=topics), 7).topics}
    assert {name: row.error_code for name, row in rows.items()} == {"new-1": 0, "new-2": 0, "other": 29}
    assert (rows["new-1"].topic_config_error_code, rows["new-1"].configs, rows["new-1"].num_partitions) == (29, (), -1)
    assert rows["new-2"].topic_config_error_code == 0
    assert rows["new-2"].configs
    assert secured.wire.broker.state.topic("other") is None


# -- records and offsets


def test_produce_and_fetch_of_several_topics(secured: Secured) -> None:
    secured.root.produce("seen", "1")
    secured.root.produce("hidden", "2")
    secured.allow("User:a", _O.READ, _R.TOPIC, "seen")
    secured.allow("User:a", _O.WRITE, _R.TOPIC, "seen")
    client = secured.connect("a")
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = tuple(FetchTopic(topic=name, partitions=(asked,)) for name in ("hidden", "seen", "absent"))
    request = FetchRequest(topics=topics, max_wait_ms=0, min_bytes=1, replica_id=-1)
    rows = {topic.topic: topic.partitions[0] for topic in client.ask(request, 11).responses}
    assert {name: row.error_code for name, row in rows.items()} == {"hidden": 29, "seen": 0, "absent": 29}
    assert [len(rows[name].records or b"") > 0 for name in ("hidden", "seen")] == [False, True]
    assert client.produced(produce_request("seen", batch("a"))).error_code == 0
    assert client.produced(produce_request("hidden", batch("a"))).error_code == 29
    assert client.produced(produce_request("absent", batch("a"))).error_code == 29
    assert len(secured.root.values("hidden")) == 1


def test_a_fetch_of_a_member_needs_its_group(secured: Secured) -> None:
    secured.allow("User:a", _O.READ, _R.TOPIC, "seen")
    client = secured.connect("a")
    request = changed(fetch_request("seen"), as_member=FetchingMember(group_id="g", member_id="m", member_epoch=1))
    assert client.ask(request, 12).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    secured.allow("User:a", _O.READ, _R.GROUP, "g")
    assert client.ask(request, 12).error_code == 0


def test_by_topic_id_an_unknown_id_comes_first(secured: Secured) -> None:
    state = secured.wire.broker.state
    client = secured.connect("a")
    for topic_id, error in ((state.catalog.topics["hidden"].topic_id, 29), (b"?" * 16, 100)):
        request = changed(produce_request("", batch("a")), topic_data=())
        [data] = produce_request("", batch("a")).topic_data
        request = changed(request, topic_data=(changed(data, topic_id=topic_id),))
        assert client.produced(request, 13).error_code == error
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(topics=(FetchTopic(topic_id=topic_id, partitions=(asked,)),), max_wait_ms=0, min_bytes=1)
        [row] = client.ask(fetch, 13).responses
        assert (row.topic_id, row.partitions[0].error_code) == (topic_id, error)


def test_acks_0_that_is_denied_closes_the_connection(secured: Secured) -> None:
    client = secured.connect("a")
    client.send(produce_request("hidden", batch("a"), acks=0), 9)
    assert client.disconnected == "produce with acks=0 failed: it is not allowed"


def test_a_denied_batch_is_not_decompressed(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """V8: authorise first."""
    from kohort.broker.logs import validation

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("decompressed")

    data = batch(*["x" * 1000] * 100, compression=1)
    root = secured.root
    monkeypatch.setattr(validation, "decompress", refuse)
    assert secured.connect("a").produced(produce_request("hidden", data)).error_code == 29
    with pytest.raises(AssertionError, match="decompressed"):
        root.produced(produce_request("hidden", data))


@pytest.mark.conformance("A4")
def test_producer_ids_are_for_writers() -> None:
    secured = Secured()
    client = secured.connect("a")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    assert client.ask(request, 4).error_code == 31
    secured.allow("User:a", _O.WRITE, _R.TOPIC, "some")
    assert client.ask(request, 4).error_code == 0
    secured.create(acl(name="*", operation=_O.WRITE, permission=DENY))
    assert client.ask(request, 4).error_code == 31
    secured.allow("User:a", _O.IDEMPOTENT_WRITE, _R.CLUSTER)
    assert client.ask(request, 4).error_code == 0
    assert client.ask(changed(request, transactional_id="x"), 4).error_code == 53


def test_commits_and_fetches_of_offsets() -> None:
    secured = Secured()
    for name in ("t", "u"):
        secured.root.create_topic(name)
        secured.root.ask(commit_request(7, topic=name), 7)
    client = secured.connect("a")
    assert errors(client.ask(commit_request(1), 7)) == {30}
    secured.allow("User:a", _O.READ, _R.GROUP, "g")
    assert errors(client.ask(commit_request(1), 7)) == {29}
    secured.allow("User:a", _O.READ, _R.TOPIC, "t")
    assert errors(client.ask(commit_request(1), 7)) == {0}
    assert errors(client.ask(commit_request(1, topic="u"), 7)) == {29}
    everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    [group] = client.ask(everything, 8).groups
    assert [topic.name for topic in group.topics] == ["t"]
    assert [topic.name for topic in client.ask(OffsetFetchRequest(group_id="g", topics=None), 5).topics] == ["t"]
    other = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="other", topics=None),))
    assert client.ask(other, 8).groups[0].error_code == 30


@pytest.mark.conformance("N16")
def test_consumer_groups_and_topics_that_one_may_not_see() -> None:
    secured = Secured()
    for name in ("t", "u"):
        secured.root.create_topic(name)
    secured.root.ask(consumer_join("m", "t", "u", group="n"), 0)
    client = secured.connect("a")
    assert client.ask(consumer_join("k", "t", group="n"), 0).error_code == 30
    secured.allow("User:a", _O.READ, _R.GROUP, "n")
    secured.allow("User:a", _O.DESCRIBE, _R.TOPIC, "t")
    refused = client.ask(consumer_join("k", "t", "u", group="n"), 0)
    assert (refused.error_code, refused.assignment) == (29, None)
    [hidden] = client.ask(ConsumerGroupDescribeRequest(group_ids=("n",)), 0).groups
    assert (hidden.error_code, hidden.members) == (29, ())
    secured.allow("User:a", _O.DESCRIBE, _R.TOPIC, "u")
    assert client.ask(consumer_join("k", "t", "u", group="n"), 0).error_code == 0
    [seen] = client.ask(ConsumerGroupDescribeRequest(group_ids=("n",)), 0).groups
    assert seen.error_code == 0
    assert seen.members


@pytest.mark.conformance("N15")
def test_a_pattern_needs_all_topics() -> None:
    secured = Secured()
    secured.root.create_topic("t")
    secured.allow("User:a", _O.READ, _R.GROUP, "n")
    secured.allow("User:a", _O.DESCRIBE, _R.TOPIC, "t")
    client = secured.connect("a")
    request = consumer_join("k", group="n", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    refused = client.ask(request, 1)
    assert (refused.error_code, refused.error_message) == (29, "A subscription by pattern needs DESCRIBE of all topics")
    secured.allow("User:a", _O.READ, _R.TOPIC, "*")
    assert client.ask(request, 1).error_code == 0
    secured.create(acl(name="secret", operation=_O.DESCRIBE, permission=DENY))
    assert client.ask(changed(request, member_id="l"), 1).error_code == 29


@pytest.mark.conformance("A8")
def test_list_groups_names_what_one_may_describe() -> None:
    secured = Secured()
    for group in ("g", "secret"):
        stable(secured.root, group)
    client = secured.connect("a")
    names = lambda: sorted(group.group_id for group in client.ask(ListGroupsRequest(), 4).groups)  # noqa: E731
    assert names() == []
    secured.allow("User:a", _O.READ, _R.GROUP, "g")
    assert names() == ["g"]
    secured.allow("User:a", _O.DESCRIBE, _R.CLUSTER)
    assert names() == ["g", "secret"]


def test_an_explanation_of_a_group_is_for_those_who_may_describe_the_cluster() -> None:
    secured = Secured()
    stable(secured.root)
    secured.allow("User:a", _O.DESCRIBE, _R.GROUP, "g")
    client = secured.connect("a")
    request = DescribeGroupsRequest(groups=("g",), explain_last=5)
    assert client.ask(request, 5).groups[0].explanation == b""
    secured.allow("User:a", _O.DESCRIBE, _R.CLUSTER)
    assert client.ask(request, 5).groups[0].explanation != b""


# -- the log


@pytest.mark.conformance("A7")
def test_denials_are_in_the_log_and_repetitions_are_counted(secured: Secured) -> None:
    client = secured.connect("a\nb", host="10.0.0.1")

    def lines() -> list[dict[str, Any]]:
        return [dict(notice.values) for notice in secured.wire.notices if notice.what == "denied"]

    for _ in range(5):
        client.ask(fetch_request("hidden"), 11)
    assert lines() == [
        {
            "principal": "User:a\\nb",
            "operation": "READ",
            "resource": "TOPIC:hidden",
            "host": "10.0.0.1",
            "api_key": 1,
        }
    ]
    secured.wire.now += 10_000
    client.ask(fetch_request("seen"), 11)
    assert [(line.get("again"), line["resource"]) for line in lines()[1:]] == [
        (4, "TOPIC:hidden"),
        (None, "TOPIC:seen"),
    ]
    client.ask(ListGroupsRequest(), 4)
    client.ask(MetadataRequest(topics=None), 9)
    assert len(lines()) == 3, "lists are silent"


@pytest.mark.conformance("A7")
def test_what_is_allowed_is_in_the_log_at_debug(secured: Secured) -> None:
    secured.allow("User:a", Operation.READ, Resource.TOPIC, "seen")
    client = secured.connect("a", host="10.0.0.1")

    def lines() -> list[dict[str, Any]]:
        notices = [notice for notice in secured.wire.notices if notice.what == "allowed"]
        assert all(notice.level == "debug" for notice in notices)
        return [dict(notice.values) for notice in notices]

    client.ask(fetch_request("seen"), 11)
    assert lines() == []
    secured.wire.broker.state.configure_broker("", {"log.level": "debug"})
    for _ in range(3):
        client.ask(fetch_request("seen"), 11)
        client.ask(fetch_request("hidden"), 11)
        client.ask(MetadataRequest(topics=None), 9)
    line = {"principal": "User:a", "operation": "READ", "resource": "TOPIC:seen", "host": "10.0.0.1"}
    assert lines() == [line | {"api_key": 1}], "lists are silent"
    secured.wire.now += 10_000
    client.ask(fetch_request("seen"), 11)
    assert lines()[1:] == [line | {"again": 2}, line | {"api_key": 1}]
    secured.wire.broker.state.configure_broker("", {})
    client.ask(fetch_request("seen"), 11)
    assert len(lines()) == 3


def test_the_log_of_denials_is_bounded(secured: Secured) -> None:
    client = secured.connect("a")
    for number in range(250):
        client.ask(fetch_request(f"x{number}"), 11)
    denied = [notice for notice in secured.wire.notices if notice.what == "denied"]
    assert len(denied) == 100
    secured.wire.now += 10_000
    client.ask(fetch_request("y"), 11)
    assert ("other_requests", 150) in [value for notice in secured.wire.notices for value in notice.values]
