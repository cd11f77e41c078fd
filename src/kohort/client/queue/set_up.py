"""What a queue needs in the cluster: its topics, and the settings of its group. Blocking calls."""

from __future__ import annotations

import logging

from kohort.client.admin.configs import ResourceType
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, ServerError, UnsupportedVersion, check
from kohort.client.queue.options import Settings
from kohort.wire.errors import ErrorCode

LOCK, LIMIT, RESET = "share.record.lock.duration.ms", "share.delivery.count.limit", "share.auto.offset.reset"
SPARE = 1
"""How far the group's limit of deliveries is above the queue's, if the queue has a dead-letter topic. In such a
delivery the worker only writes the dead letter, because the worker of the delivery before has died without writing
it."""

log = logging.getLogger("kohort.client")


def create_topics(cluster: Cluster, settings: Settings) -> None:
    """Create what is missing, or check that nothing is. Raises ServerError."""
    delay_topic = settings.options["delay_topic"]
    others = (settings.options["dead_letter"], delay_topic)
    names = [*settings.weights, *(name for name in others if name is not None)]
    for name, topic in cluster.topics(names).items():
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and settings.options["create_topics"]:
            try:
                if name == delay_topic:
                    cluster.create_topic(name, 1, configs={"cleanup.policy": "compact"})
                else:
                    cluster.create_topic(name)
            except ServerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        else:
            check(topic.error, f"topic {name}")


def configure_group(cluster: Cluster, settings: Settings) -> None:
    """Give the group its settings, as far as they differ.

    Raises ServerError: INVALID_CONFIG, also if the cluster has no share groups; GROUP_AUTHORIZATION_FAILED if a setting
    must be changed that this user may not change.
    """
    options = settings.options
    spare = SPARE if options["dead_letter"] is not None else 0
    wanted = {LIMIT: str(options["max_deliveries"] + spare)}
    if options["lock"] is not None:
        wanted[LOCK] = str(int(options["lock"] * 1000))
    if options["start"] is not None:
        wanted[RESET] = options["start"]
    current = {entry.name: entry.value for entry in cluster.configs_of(ResourceType.GROUP, settings.group_id)}
    if LIMIT not in current:
        raise UnsupportedVersion(
            f"group {settings.group_id}: the cluster has no share groups; they need Apache Kafka 4.2, or kohort with "
            "group.share.enable=true"
        )
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if current.get(name) != value}
    if not changes:
        return
    try:
        cluster.alter_configs(ResourceType.GROUP, settings.group_id, changes)
    except KafkaError as error:
        names = ", ".join(f"{name}={value}" for name, value in changes.items())
        raise error.because(f"a work queue of group {settings.group_id} sets {names}") from None
    log.info("group %s: set %s", settings.group_id, changes)
