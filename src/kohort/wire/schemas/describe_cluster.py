"""DescribeCluster (API key 60)."""

from kohort.wire.schema import field, message


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = field("bool")
    endpoint_type: int = field("int8", "1+", default=1)
    include_fenced_brokers: bool = field("bool", "2+", default=False)


@message()
class DescribeClusterBroker:
    broker_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", nullable="0+", default=None)
    is_fenced: bool = field("bool", "2+", default=False)


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16")
    error_message: str | None = field("string", nullable="0+", default=None)
    endpoint_type: int = field("int8", "1+", default=1)
    cluster_id: str = field("string")
    controller_id: int = field("int32", default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = field([DescribeClusterBroker])
    cluster_authorized_operations: int = field("int32", default=-2147483648)
