"""ApiVersions (API key 18)."""

from kohort.wire.schema import field, message

LASTING_GENERATIONS = "kohort.lasting.generations"
"""A feature of kohort alone (docs/wire-extensions.md): a group never uses a generation twice."""


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = field("string", "3+", default="")
    client_software_version: str = field("string", "3+", default="")


@message()
class ApiVersion:
    api_key: int = field("int16")
    min_version: int = field("int16")
    max_version: int = field("int16")


@message()
class SupportedFeatureKey:
    name: str = field("string", "3+", default="")
    min_version: int = field("int16", "3+", default=0)
    max_version: int = field("int16", "3+", default=0)


@message()
class FinalizedFeatureKey:
    name: str = field("string", "3+", default="")
    max_version_level: int = field("int16", "3+", default=0)
    min_version_level: int = field("int16", "3+", default=0)


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = field("int16")
    api_keys: tuple[ApiVersion, ...] = field([ApiVersion])
    throttle_time_ms: int = field("int32", "1+", default=0)
    supported_features: tuple[SupportedFeatureKey, ...] = field([SupportedFeatureKey], "3+", tag=0, default=())
    finalized_features_epoch: int = field("int64", "3+", tag=1, default=-1)
    finalized_features: tuple[FinalizedFeatureKey, ...] = field([FinalizedFeatureKey], "3+", tag=2, default=())
    zk_migration_ready: bool = field("bool", "3+", tag=3, default=False)
