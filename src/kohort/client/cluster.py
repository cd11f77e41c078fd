"""A Kafka cluster as a client uses it: topics, offsets, records in and out, groups seen from outside.

`Cluster` has a method for each call; the module of the subject carries it out, and `routing.Router` does routing,
retries and connections. A call blocks until it has its answer. It retries what can be retried (a leader or coordinator
that moves, a dropped connection, a broker that starts) until `api_timeout_ms`, and raises a `KafkaError` then. It works
with Apache Kafka 2.1 or later, and with every server that speaks the same protocol.

A Cluster belongs to one thread. It opens connections on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from kohort.client.admin import (
    acls,
    configs,
    explanations,
    groups,
    lag,
    open_transactions,
    quotas,
    share_groups,
    topics,
    transactions,
    users,
)
from kohort.client.admin.acls import AclBinding, AclFilter
from kohort.client.admin.configs import ConfigEntry, ResourceType
from kohort.client.admin.explanations import GroupExplanation
from kohort.client.admin.groups import Committed, Committer, GroupDescription, ListedGroup, Member
from kohort.client.admin.lag import GroupLag
from kohort.client.admin.open_transactions import ActiveProducer, OpenTransaction
from kohort.client.admin.quotas import ClientQuotas
from kohort.client.admin.transactions import ListedTransaction, TransactionDescription, TransactionFilter
from kohort.client.admin.users import ScramUser
from kohort.client.coordination import token_topic
from kohort.client.errors import error_code
from kohort.client.metadata import Node, Topic, TopicPartition
from kohort.client.records import partition_leaders
from kohort.client.records.moments import Moment, timestamps
from kohort.client.records.partition_leaders import FetchedPartition, Fetching, FetchSettings, GroupMember
from kohort.client.security.security import Security
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import Router, Timing
from kohort.security.scram import DEFAULT_ITERATIONS
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_user_scram_credentials import AlterUserScramCredentialsRequest

Isolation = partition_leaders.Isolation

BROKER_DEFAULT = ALL = -1


class Cluster:
    """A client of one cluster. Use it from one thread; close it, or use it in a `with`.

    `bootstrap_servers` is "HOST:PORT,HOST:PORT" (ValueError if it is not); one reachable broker is enough. Times are
    in milliseconds: `request_timeout_ms` limits one request, `api_timeout_ms` one call with its retries,
    `bootstrap_timeout_ms` a call while no broker has answered yet. `security` are security properties in Kafka's
    names, or a `Security` (ValueError).
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        client_id: str = "kohort",
        *,
        request_timeout_ms: int = 30_000,
        api_timeout_ms: int = 60_000,
        bootstrap_timeout_ms: int = 10_000,
        connect_timeout_ms: int = 10_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        security: Security | Mapping[str, str] | None = None,
    ) -> None:
        timing = Timing(
            request=request_timeout_ms,
            api=api_timeout_ms,
            bootstrap=bootstrap_timeout_ms,
            connect=connect_timeout_ms,
            backoff=retry_backoff_ms,
            backoff_max=retry_backoff_max_ms,
            metadata_max_age=metadata_max_age_ms,
        )
        self._router = Router(bootstrap_servers, client_id, timing, Security.of(security))
        self._fetching = Fetching(self._router)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. The next call would open them again."""
        self._router.close()

    # -- the cluster

    def nodes(self) -> dict[int, Node]:
        """The brokers by id."""
        return dict(self._router.retrying(self._router.nodes))

    def cluster_id(self) -> str | None:
        """The cluster's id; None if it has none."""
        self._router.retrying(self._router.nodes)
        return self._router.view.cluster_id

    def controller_id(self) -> int:
        """The broker that changes topics; -1 if the cluster does not name it."""
        self._router.retrying(self._router.nodes)
        return self._router.view.controller_id

    def connection(self, node_id: int) -> Connection:
        """An open connection to a broker, for requests that have no call here. Not retried.

        Raises ConnectionFailed, TimedOut, UnsupportedVersion. Do not keep it over other calls: it may be closed.
        """
        return self._router.connection(node_id)

    # -- topics

    def topics(
        self, names: Iterable[str] | None = None, *, internal: bool = False, create: bool = False
    ) -> dict[str, Topic]:
        """Topics by name, never from a cache: `names`, or all (with internal ones, as `__consumer_offsets`, if
        `internal`).

        A name without a topic has its `error` set (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION,
        TOPIC_AUTHORIZATION_FAILED). `create` lets the broker create missing topics, if it is configured to.
        """
        return topics.topics(self._router, names, internal=internal, create=create)

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create a topic; -1 leaves a number to the broker (Kafka 2.4 and later). With `validate_only` the cluster only
        checks whether it could.

        Raises ServerError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_CONFIG, POLICY_VIOLATION. TOPIC_ALREADY_EXISTS may also mean that the
        answer to a first attempt was lost.
        """
        topics.create_topic(
            self._router, name, partitions, replication_factor, configs or {}, validate_only=validate_only
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises ServerError: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED."""
        topics.delete_topic(self._router, name)

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions, `count` in all. With `validate_only` the cluster only checks that. Raises
        ServerError (INVALID_PARTITIONS if it has as many)."""
        topics.create_partitions(self._router, name, count, validate_only=validate_only)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records of partitions before an offset of each; -1 is the end. Returns where the logs begin then.
        Raises ServerError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION for a topic that is only compacted."""
        return partition_leaders.delete_records(self._router, before)

    def describe_configs(self, names: Iterable[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """The settings of topics, by topic, in order of their names; defaults included."""
        return configs.describe_configs(self._router, ResourceType.TOPIC, names)

    # -- settings of all kinds of resources

    def configs_of(self, type: ResourceType, name: str) -> tuple[ConfigEntry, ...]:
        """The settings of a resource, in order of their names; defaults included. A broker's name is its id, and ""
        stands for the defaults of all brokers. Raises ServerError (INVALID_REQUEST for a type without settings)."""
        [found] = configs.describe_configs(self._router, type, (name,)).values()
        return found

    def alter_configs(
        self, type: ResourceType, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of a resource, all of these or none; None removes one. With `validate_only` the cluster only
        checks them. Kafka 2.3 and later. Raises ServerError: INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION."""
        configs.alter_configs(self._router, type, name, changes, validate_only=validate_only)

    # -- ACLs

    def acls(self, wanted: AclFilter | None = None) -> tuple[AclBinding, ...]:
        """The ACLs that a filter selects; all by default. Raises ServerError: SECURITY_DISABLED."""
        return acls.list_acls(self._router, wanted or AclFilter())

    def create_acls(self, bindings: Sequence[AclBinding]) -> None:
        """Create ACLs. One that exists is no error. Raises ServerError: SECURITY_DISABLED, INVALID_REQUEST."""
        acls.create_acls(self._router, bindings)

    def delete_acls(self, wanted: AclFilter) -> tuple[AclBinding, ...]:
        """Delete the ACLs that a filter selects, and return them. Raises ServerError: SECURITY_DISABLED."""
        return acls.delete_acls(self._router, wanted)

    # -- records

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: Moment | Mapping[TopicPartition, Moment] = "latest",
        *,
        isolation: Isolation = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at a moment, or at each partition's own.

        "earliest" is the first offset of the log, "latest" the offset of the next record (with read_committed the last
        stable offset), a number the first record at or after that time in milliseconds, "max-timestamp" the record with
        the largest timestamp (Kafka 3.0 and later). -1 if no record fits. Raises ServerError.
        """
        return partition_leaders.list_offsets(self._router, timestamps(partitions, at), isolation == "read_committed")

    def produce(
        self, topic: str, partition: int, records: bytes | Sequence[NewRecord], *, acks: int = ALL, compression: int = 0
    ) -> int:
        """Append records, or one encoded record batch, to a partition. Returns the offset of the first.

        `acks`: -1 all in-sync replicas, 1 the leader, 0 no answer (returns -1, and losses go unnoticed).
        `compression` is a codec number of `kohort.wire.compression`. Not idempotent: a retry after a lost answer can
        append the batch twice. Raises ServerError: MESSAGE_TOO_LARGE, INVALID_RECORD, TOPIC_AUTHORIZATION_FAILED, ...
        """
        batch = records if isinstance(records, bytes) else encode_batch(records, compression=compression)
        return self.produce_batches({(topic, partition): batch}, acks=acks)[topic, partition]

    def produce_batches(self, batches: Mapping[TopicPartition, bytes], *, acks: int = ALL) -> dict[TopicPartition, int]:
        """Append one record batch to each of several partitions, all at once; as `produce` otherwise."""
        return partition_leaders.produce(self._router, batches, acks)

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 52_428_800,
        partition_max_bytes: int = 1_048_576,
        isolation: Isolation = "read_uncommitted",
        as_member: GroupMember | None = None,
    ) -> list[FetchedPartition]:
        """Fetch record batches from a position of each partition; `kohort.client.records` reads them.

        Returns after about `max_wait_ms` if there is nothing to read. `max_bytes` limits the answer of one broker and
        `partition_max_bytes` a partition's share, except that the first batch is always whole. The list lacks a
        partition whose leader is moving; the call raises once that has lasted for the api timeout. A partition with an
        `error` is in the list (OFFSET_OUT_OF_RANGE: the position is not in the log). It also lacks the partitions of a
        broker that answers nothing because of a quota. If no broker answers, the call waits as long as they say, and
        returns nothing after the api timeout. Raises KafkaError.

        `as_member` reads as a member of a consumer group. kohort then refuses partitions that the member does not own
        at its epoch (docs/wire-extensions.md): FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID or
        GROUP_ID_NOT_FOUND in their `error`. Other brokers do not check ownership; `fenced` is False in their answers.
        """
        settings = FetchSettings(max_wait_ms, min_bytes, max_bytes, partition_max_bytes, isolation, as_member)
        return self._fetching.fetch(positions, settings)

    def next_token(self, topic: str, key: str) -> int:
        """The next fencing token of a key: 1, 2, 3, …; larger than all earlier tokens of this key.

        The tokens are in a compacted topic of one partition, which is created if it is missing, and are written in
        transactions (Kafka 0.11 and later). kohort needs no such topic: its generations serve as tokens.
        Raises `token_topic.Overtaken` if another process has begun to take a token of this key meanwhile, and
        ServerError.
        """
        return token_topic.next_token(self._router, topic, key)

    def fetch_ahead(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 52_428_800,
        partition_max_bytes: int = 1_048_576,
        isolation: Isolation = "read_uncommitted",
        as_member: GroupMember | None = None,
    ) -> Callable[[], list[FetchedPartition]]:
        """`fetch` in two halves: sends the request, and returns a function that waits for the answer.

        So the broker works while the caller does. Until the function has returned, this Cluster may be closed, but not
        called. If more than one request is needed, the function does the whole fetch.
        """
        settings = FetchSettings(max_wait_ms, min_bytes, max_bytes, partition_max_bytes, isolation, as_member)
        return self._fetching.fetch_ahead(positions, settings)

    # -- groups

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, in order of their ids; if given, only those with these states or types."""
        return groups.list_groups(self._router, states, types)

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups and their members. A group that does not exist is in state "Dead"."""
        return groups.describe_groups(self._router, group_ids)

    def explain_group(self, group_id: str, *, last: int = 20) -> GroupExplanation:
        """The newest stories of a group's rebalances, and the members that the rebalance under way waits for. Raises
        NoJournal if the coordinator shows no journal: only kohort keeps one, for users who may DESCRIBE the cluster."""
        return explanations.explain_group(self._router, group_id, last)

    def group_configs(self, group_ids: Iterable[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """The settings of groups, by group, in order of their names; includes defaults. A group need not exist. Raises
        ServerError (INVALID_REQUEST from brokers whose groups have no settings)."""
        return configs.describe_configs(self._router, ResourceType.GROUP, group_ids)

    def alter_group_configs(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a group, as `alter_configs`. The group need not exist."""
        configs.alter_configs(self._router, ResourceType.GROUP, group_id, changes)

    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets. Raises ServerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        groups.delete_group(self._router, group_id)

    @property
    def share_groups(self) -> share_groups.ShareGroups:
        """Offsets, lag and records of share groups, and how to change them."""
        return share_groups.ShareGroups(self._router)

    def remove_members(self, group_id: str, members: Sequence[Member], reason: str = "") -> dict[Member, ErrorCode]:
        """Remove members. Returns the refused ones, and why. Raises ServerError, UnsupportedVersion (Kafka < 2.4)."""
        refused = groups.remove_members(self._router, group_id, members, reason)
        return {member: error_code(code) for member, code in refused.items()}

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Delete a group's committed offsets. Returns the refused partitions, and why.

        GROUP_SUBSCRIBED_TO_TOPIC: members of the group subscribe to the topic. Raises ServerError: GROUP_ID_NOT_FOUND;
        NON_EMPTY_GROUP for a group with members that is no consumer group. Kafka 2.4 and later delete offsets
        (UnsupportedVersion).
        """
        refused = groups.delete_offsets(self._router, group_id, partitions)
        return {place: error_code(code) for place, code in refused.items()}

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """A group's committed offsets: all, or those of `partitions`; not of partitions without one."""
        return groups.committed(self._router, group_id, partitions)

    def group_lags(self, group_ids: Iterable[str], also: Iterable[TopicPartition] = ()) -> dict[str, GroupLag]:
        """How far groups are behind in each partition with a committed offset, and the ends of the logs of others
        (`also`). kohort tells it in time too, all partitions of a group at one instant."""
        return lag.group_lags(self._router, group_ids, also)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int | Committed]) -> None:
        """Commit offsets for a group without being its member.

        Possible while the group is empty; if it has members, the coordinator answers UNKNOWN_MEMBER_ID.
        Raises ServerError, also OFFSET_METADATA_TOO_LARGE, INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED.
        """
        groups.commit(self._router, group_id, groups.as_committed(offsets))

    def commit_as(
        self, group_id: str, offsets: Mapping[TopicPartition, int | Committed], committer: Committer
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets in the name of a member. Returns the refused partitions, and why.

        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID: the member does not own them
        any more. REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH: retry in the next generation or epoch.
        """
        refused = groups.commit_as(self._router, group_id, groups.as_committed(offsets), committer)
        return {place: error_code(code) for place, code in refused.items()}

    def leave_as(self, group_id: str, member: Committer, *, classic: bool) -> None:
        """Make a member leave its group, for instance one whose process has died, before its session ends.

        The place of a static member of KIP-848's protocol is kept, so that it may come back; a static member of the
        `classic` protocol stays in the group. Nothing happens if there is no such member.
        """
        groups.leave_as(self._router, group_id, member, classic=classic)

    # -- transactions

    def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        longer_than_ms: int = transactions.ANY,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """The transactional ids of all brokers, in order; if filters are given, only those that fit all of them.

        `longer_than_ms` (Kafka 3.8 and later): the transaction began before this time; ids without a transaction fit
        too, so combine it with `states`. `pattern` (Kafka 4.1 and later): a regular expression of RE2 for the whole id.
        Raises UnsupportedVersion, ServerError (INVALID_REGULAR_EXPRESSION).
        """
        wanted = TransactionFilter(tuple(states), tuple(producer_ids), longer_than_ms, pattern)
        return transactions.list_transactions(self._router, wanted)

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, aborts: int = 0
    ) -> dict[str, TransactionDescription]:
        """Transactions by transactional id; leaves out ids that their coordinators do not know.

        `aborts`: how many of the newest journal entries of each id are wanted, about transactions that were fenced or
        timed out; only kohort has them. Raises UnsupportedVersion (Kafka 3.0 and later describe transactions),
        ServerError.
        """
        return transactions.describe_transactions(self._router, transactional_ids, aborts)

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that partitions know, in order of their ids. Raises UnsupportedVersion (Kafka 2.8 and later
        describe producers), ServerError."""
        return open_transactions.describe_producers(self._router, partitions)

    def open_transactions(
        self, partitions: Iterable[TopicPartition], *, with_ids: bool = True
    ) -> list[OpenTransaction]:
        """The transactions that are open in these partitions, in order of topic, partition and first offset.

        The first transaction of a partition is the one for which readers of committed records wait. `with_ids` asks
        all brokers for the transactional ids. Raises UnsupportedVersion, ServerError.
        """
        found = open_transactions.open_transactions(self._router, partitions)
        if not with_ids:
            return found
        ids = open_transactions.transactional_ids(self._router, (one.producer_id for one in found))
        return open_transactions.named(found, ids)

    def hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, idle_for_ms: int | None = 900_000
    ) -> list[OpenTransaction]:
        """The transactions of these partitions that nobody will end: their coordinators do not have them.

        A transaction whose newest batch is younger than `idle_for_ms` by this machine's clock is left out, so that
        fewer have to be looked up. The default is the longest time-out that brokers allow by default. None looks up
        all.
        """
        found = open_transactions.open_transactions(self._router, partitions)
        if idle_for_ms is not None:
            found = open_transactions.idle(found, idle_for_ms)
        return open_transactions.hanging(self._router, found)

    def abort_in_partition(self, transaction: OpenTransaction) -> None:
        """Abort a hanging transaction: write its abort marker into the partition.

        The coordinator takes no part, so do this only with what `hanging_transactions` returns; else a coordinator may
        commit the transaction's other partitions. Raises ServerError: INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if the partition has a newer epoch, CLUSTER_AUTHORIZATION_FAILED.
        """
        open_transactions.abort_in_partition(self._router, transaction)

    def fence_producer(self, transactional_id: str, *, timeout_ms: int = 60_000) -> tuple[int, int]:
        """Abort the open transaction of a transactional id, and fence its producer: InitProducerId.

        Returns when the transaction has ended; an outcome that was decided before stays. The coordinator creates an id
        that it does not know. `timeout_ms` becomes the id's transaction time-out, until a producer sets its own.
        Returns the new producer id and epoch. Raises ServerError: INVALID_TRANSACTION_TIMEOUT,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        return transactions.fence_producer(self._router, transactional_id, timeout_ms)

    # -- quotas

    def client_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """The quotas of the entities that have these parts (`user`, `client-id`, `ip`; None is the default), all by
        default; with `strict`, those that have no other parts. Raises UnsupportedVersion, ServerError."""
        return quotas.client_quotas(self._router, entity or {}, strict=strict)

    def alter_client_quotas(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set quotas of one entity; None removes. Raises UnsupportedVersion, ServerError (INVALID_REQUEST)."""
        quotas.alter(self._router, entity, values)

    # -- users

    def scram_users(self, names: Iterable[str] | None = None) -> list[ScramUser]:
        """Users with SCRAM credentials, by name; with `names`, those of them that exist. Raises UnsupportedVersion
        (Kafka 2.7 and later), ServerError."""
        return users.scram_users(self._router, names)

    def add_scram_user(
        self, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = DEFAULT_ITERATIONS
    ) -> None:
        """Give a user a password for a mechanism, a new one or in place of the former. It is hashed here and not sent.

        Raises KeyError for another mechanism than SCRAM-SHA-256 and SCRAM-SHA-512, ServerError.
        """
        users.alter(self._router, users.addition(name, password, mechanism, iterations))

    def alter_scram_users(self, request: AlterUserScramCredentialsRequest) -> None:
        """Send a request that `kohort.client.admin.users` has made. Raises ServerError."""
        users.alter(self._router, request)

    def delete_scram_user(self, name: str, *, mechanism: str = "SCRAM-SHA-512") -> None:
        """Delete a user's credential. Raises ServerError (RESOURCE_NOT_FOUND)."""
        users.alter(self._router, users.deletion(name, mechanism))
