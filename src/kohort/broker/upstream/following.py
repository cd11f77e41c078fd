"""Takes over what a gateway has found out about the cluster before which it stands.

Its topics are topics of this catalog, with their ids and numbers of partitions, and without logs. So groups find them
as they find the broker's own, also after a restart during which that cluster is away. Ends of logs are soft state:
groups' lag is unknown, or that of the last refresh, until the edge reads them again.

Nothing is deleted because an answer lacks it. The edge decides what is gone (`gateway/view.py`), because committed
offsets are deleted with their topic.
"""

from __future__ import annotations

import hashlib

from kohort.broker.security.acls import Acl
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import Catalog, upstream_record
from kohort.broker.turn import FollowedTopic, UpstreamSeen
from kohort.storage.protocol import WrongDirectory
from kohort.wire.schemas.api_versions import ApiVersion
from kohort.wire.schemas.metadata_records import PartitionAssignment, UpstreamValue

NO_LEADER = -1


def follow(state: BrokerState, seen: UpstreamSeen) -> None:
    if seen.cluster is not None and seen.cluster != state.catalog.upstream:
        before = state.catalog.upstream
        state.topics.decide(upstream_record(seen.cluster))
        advertise(state)
        if before is None or racks_of(before) != racks_of(seen.cluster):
            names = (topic.name for topic in state.catalog.topics.values() if topic.is_followed)
            state.topics.changed.update(dict.fromkeys(names))
    if seen.gone:
        gone = [state.catalog.topics.get(name) for name in seen.gone]
        state.delete_topics([topic for topic in gone if topic is not None and topic.is_followed])
    for topic in seen.topics:
        _follow_topic(state, topic)
    for topic_id, index, end_offset in seen.ends:
        partitions = state.topics.partitions.get(topic_id, ())
        if index < len(partitions):
            partitions[index].follow(end_offset)
    if seen.acls is not None:
        _follow_acls(state, seen.acls)


def _follow_acls(state: BrokerState, acls: tuple[Acl, ...]) -> None:
    wanted, present = frozenset(acls), state.catalog.acls
    for acl_id in [acl_id for acl_id, acl in present.by_id.items() if acl not in wanted]:
        state.delete_acl(acl_id)
    for acl in acls:
        if acl not in present:
            state.create_acl(acl)


def advertise(state: BrokerState) -> None:
    """Clients learn of the APIs of the last contact."""
    upstream = state.catalog.upstream
    if upstream is not None:
        state.advertised_apis = tuple(
            ApiVersion(api_key=api.key, min_version=api.first, max_version=api.last) for api in upstream.apis
        )


def racks_of(upstream: UpstreamValue) -> dict[int, str | None]:
    return {broker.id: broker.rack for broker in upstream.brokers}


def id_of_name(name: str) -> bytes:
    """The id of a topic of which the other cluster has told none, so far: Metadata has ids since version 10."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def _follow_topic(state: BrokerState, seen: FollowedTopic) -> None:
    topic = state.catalog.topics.get(seen.name)
    if topic is not None and not topic.is_followed:
        return  # the broker's own topics have the names of the other cluster's
    if topic is not None and topic.topic_id != seen.topic_id:
        if topic.topic_id == id_of_name(topic.name):
            state.topics.delete(topic)  # it has an id now, and its offsets stay
        else:
            state.delete_topics([topic])
        topic = None
    before = () if topic is None else topic.partitions
    assignments = tuple(
        PartitionAssignment(leader=replicas[0] if replicas else NO_LEADER, leader_epoch=0, replicas=replicas)
        for replicas in seen.replicas
    )
    if before != assignments:
        state.topics.follow(seen.name, seen.topic_id, assignments + before[len(assignments) :])


def check_owner(catalog: Catalog, data_dir: str, *, is_gateway: bool) -> None:
    """Raises WrongDirectory if the data are those of a server, and a gateway starts on them, or the other way round."""
    has_topics = any(not (topic.is_followed or topic.is_internal) for topic in catalog.topics.values())
    if (has_topics and is_gateway) or (catalog.upstream is not None and not is_gateway):
        owner, command = ("server", "serve") if is_gateway else ("gateway", "gateway")
        where = f"the data directory {data_dir} is that" if data_dir else "the data in the database are those"
        raise WrongDirectory(f"{where} of a {owner}; run kohort {command} on it")
