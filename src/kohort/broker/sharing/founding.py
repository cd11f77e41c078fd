"""What a new cluster writes first: its id, its own topics, and the secret of SASL listeners."""

from __future__ import annotations

import base64
import secrets

from kohort.broker.journal.topic import create_journal_topic
from kohort.broker.state import BrokerState
from kohort.broker.topics.catalog import METADATA_LOG, OFFSETS_TOPIC, cluster_record, secret_record
from kohort.config import listeners_of
from kohort.storage.protocol import CreateLog

OFFSETS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}


def new_cluster_id(state: BrokerState) -> str:
    return base64.urlsafe_b64encode(state.topics.new_topic_id()).decode().rstrip("=")


def found_topics(state: BrokerState) -> None:
    """The metadata log, the cluster's id and the broker's own topics, in an empty storage."""
    count = state.config.offsets_topic_num_partitions
    state.turn.operations.append(CreateLog(METADATA_LOG))
    state.topics.decide(cluster_record(state.catalog.cluster_id or new_cluster_id(state), count))
    factor = min(state.config.offsets_topic_replication_factor, len(state.nodes))
    state.topics.create(OFFSETS_TOPIC, state.topics.place(count, factor), dict(OFFSETS_TOPIC_CONFIGS))
    if state.config.journal_enable:
        create_journal_topic(state)


def found_secret(state: BrokerState) -> None:
    needs = state.slots is not None or any(listener.is_sasl for listener in listeners_of(state.config))
    if needs and not state.catalog.credentials.secret:
        state.topics.decide(secret_record(secrets.token_bytes(32)))
