"""User data of Kafka's `sticky` assignor in a subscription, without a version in front."""

from kohort.wire.schema import field, message


@message()
class StickyTopicPartitions:
    topic: str = field("string")
    partitions: tuple[int, ...] = field(["int32"])


@message(versions="0-1")
class StickyUserData:
    previous_assignment: tuple[StickyTopicPartitions, ...] = field([StickyTopicPartitions])
    generation: int = field("int32", "1+", default=-1)
