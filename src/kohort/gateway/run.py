"""The process of a gateway: the settings of a server that stands before another cluster."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.client.security.security import Security
from kohort.config import Config, ConfigError, listeners_of, with_values
from kohort.config.settings import ALL
from kohort.gateway.gateway import Gateway
from kohort.server.serve import run as run_server


def gateway_config(config: Config) -> Config:
    """The settings of the server within a gateway. Raises ConfigError for those that make no sense there."""
    if config.brokers != 1:
        raise ConfigError("brokers has no meaning for a gateway: it has a listener for each broker of its upstream")
    if config.group_share_enable:
        raise ConfigError(
            "group.share.enable has no meaning for a gateway: share groups do not pass it. Their members connect to "
            "the upstream cluster's own address"
        )
    if config.cluster_serving == ALL:
        raise ConfigError(
            "cluster.serving=all does not work with a gateway: of several gateways on one database one serves, and "
            "another takes over"
        )
    for listener in listeners_of(config):
        if listener.is_sasl:
            raise ConfigError(
                f"the listener {listener.name} is {listener.protocol}; SASL passes through a gateway to the upstream "
                f"cluster, so its listeners are PLAINTEXT or SSL"
            )
    # With level 2, clients leave AddPartitionsToTxn to a Produce of version 12, which does not pass.
    return with_values(config, transaction_version=1)


def run(config: Config, upstream: Sequence[tuple[str, int]], security: Security, ports: Sequence[int]) -> int:
    """Serve until a signal or a failure ends it. Returns the exit code. Raises ConfigError."""
    own = {address for listener in listeners_of(config) for address in listener.addresses if address.port}
    for host, port in upstream:
        if (host, port) in own or ("127.0.0.1" if host == "localhost" else host, port) in own:
            raise ConfigError(
                f"--upstream {host}:{port} is the gateway's own listener; give the gateway another address with "
                f"--listen, or name the brokers of the cluster"
            )
    return run_server(gateway_config(config), Gateway(upstream, security, ports=ports))
