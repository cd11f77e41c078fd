"""A server in a thread of the test's process, with an event loop of its own. Call its methods from any thread.

It has Kafka's defaults with these exceptions: it keeps its data in memory, listens on free ports of 127.0.0.1, no
rebalance waits for more members (group.initial.rebalance.delay.ms=0, group.storm.rebalance.delay.ms=0), and consumer
groups have short intervals (QUICK_CONSUMER_GROUPS). Tests whose members die need a shorter
group_min_session_timeout_ms than Kafka's six seconds, or a `ManualClock`. With compatibility="kafka" only the first two
exceptions hold.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from kohort.client.admin.groups import GroupDescription
from kohort.client.cluster import BROKER_DEFAULT, Cluster
from kohort.client.settings import refuse_unknown
from kohort.config import (
    KAFKA,
    PREFIX,
    SETTINGS,
    Config,
    check,
    check_type,
    preset,
    property_name,
    share_memory,
    spelled_out,
    with_values,
)
from kohort.server.serve import loop_factory
from kohort.server.server import Server
from kohort.storage.memory import MemoryStorage
from kohort.testing import calls
from kohort.testing.clock import ManualClock
from kohort.testing.ports import HeldPorts
from kohort.testing.secured import ADMIN, MECHANISM, Secured

_T = TypeVar("_T")

START_S = 20.0
STOP_S = 10.0
CALL_MS = 15_000
"""How long a call as a client is retried."""
HEARTBEAT_MS = 100
"""The interval of members in quick groups."""
QUICK_CONSUMER_GROUPS = {"heartbeat_interval_ms": HEARTBEAT_MS, "assignment_interval_ms": 0}
"""Settings of consumer groups, and their least values, unless the test sets one of the two."""

running: dict[KohortServer, None] = {}
"""The servers of this process that run now, for the pytest plugin."""


def _make_quick(settings: dict[str, Any]) -> None:
    settings.setdefault("group_initial_rebalance_delay_ms", 0)
    settings.setdefault("group_storm_rebalance_delay_ms", 0)
    for what, value in QUICK_CONSUMER_GROUPS.items():
        names = f"group_consumer_{what}", f"group_consumer_min_{what}"
        if not settings.keys() & set(names):
            settings |= dict.fromkeys(names, value)


class KohortServer:
    """Use it as a context manager, or call `start` and `stop`. Takes any server setting as a keyword, with its typed
    value: `num_partitions=6`, or with the dotted name `**{"num.partitions": 6}`.

    `compatibility="kafka"` is the strict mode, for software meant for Apache Kafka: answers are Kafka's wherever
    kohort can give them, and all intervals are Kafka's. It does not go with a setting that the mode turns off.

    `data_dir` keeps the data on disk; without it, memory keeps it for as long as this object lives, over `restart`
    and over `kill` and `start`. A stopped server keeps its ports for itself until the context ends. `clock` replaces
    the system's clock: tests advance it instead of waiting for a session to end. Raises ConfigError for a bad setting.

    `security="SASL_SSL"` (or SSL, SASL_PLAINTEXT) gives a listener with TLS, SASL or both, with certificates for
    localhost, and `users={"alice": "secret"}` users with passwords: `client_config(user="alice")` has the settings of
    their clients. TLS needs the package cryptography.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] = "",
        clock: ManualClock | None = None,
        security: str = "",
        users: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self._secured = Secured(security, users or {}) if security else None
        if self._secured is not None:
            settings = self._secured.settings() | settings
        prefixed = [name for name in settings if name.lower().startswith(PREFIX)]
        of_listeners = tuple((name.lower(), str(settings.pop(name))) for name in prefixed)
        settings = {name.replace(".", "_"): value for name, value in settings.items()}
        known = {field.name for field in dataclasses.fields(Config)}
        refuse_unknown("KohortServer", settings, known, "`kohort serve --list-settings` prints all")
        for name, value in settings.items():
            if isinstance(value, os.PathLike):
                settings[name] = value = os.fspath(value)
            if property_name(name) in SETTINGS:
                check_type(property_name(name), value)
        settings.setdefault("listeners", "127.0.0.1:0")
        if settings.get("compatibility") != KAFKA:
            _make_quick(settings)
        settings |= {"data_dir": os.fspath(data_dir), "of_listeners": of_listeners}
        self._config = check(Config(**share_memory(preset(settings))))
        self._clock = clock
        self._memory: MemoryStorage | None = None
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self._held = HeldPorts()

    def __repr__(self) -> str:
        return f"<KohortServer {self._config.listeners}, {'stopped' if self._server is None else 'running'}>"

    # -- start and stop

    def start(self) -> Self:
        """Start, and return when clients can connect. Raises the error that prevents the start."""
        if self._thread is not None:
            raise RuntimeError("this server is already running")
        storage = None
        if not self._config.data_dir and not self._config.storage:
            storage = self._memory = self._memory or MemoryStorage()
        server = self._new_server(storage)
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(server, started), name="kohort-server", daemon=True)
        self._held.release()
        self._thread.start()
        try:
            started.result(START_S)
        except BaseException:
            self._thread.join(STOP_S)
            self._thread = None
            raise
        self._server = server
        running[self] = None
        if self._secured is not None and self._secured.users:
            with self._cluster() as cluster:
                self._secured.add_users(cluster)
        # The server keeps these ports over restarts.
        self._config = with_values(
            self._config, listeners=spelled_out(server.listening.items()), http_listener=str(server.http_address or "")
        )
        return self

    def _new_server(self, storage: MemoryStorage | None) -> Server:
        return Server(self._config, storage, self._clock)

    def _run(self, server: Server, started: concurrent.futures.Future[None]) -> None:
        factory = loop_factory() or asyncio.new_event_loop
        self._loop = loop = factory()
        try:
            loop.run_until_complete(server.start())
        except BaseException as error:
            started.set_exception(error)
        else:
            started.set_result(None)
            loop.run_forever()
        finally:
            loop.close()

    def stop(self) -> None:
        """Stop as on SIGTERM: answer parked requests, then close connections.

        Raises RuntimeError, with its cause, if the server has failed before.
        """
        server = self._server
        self._end(lambda server: server.stop())
        if server is not None and server.failure is not None:
            raise RuntimeError(
                f"the server had failed: {str(server.failure) or repr(server.failure)}"
            ) from server.failure

    def kill(self) -> None:
        """Stop as on kill -9: break connections, answer nothing. `start` starts it again."""

        async def kill(server: Server) -> None:
            server.kill()

        self._end(kill)

    def restart(self) -> None:
        """Stop and start on the same ports, with the data. Clients lose their connections and reconnect."""
        self.stop()
        self.start()

    def _end(self, how: Callable[[Server], Coroutine[Any, Any, None]]) -> None:
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        running.pop(self, None)
        try:
            self._call(how(server))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(STOP_S)
            self._server = self._thread = None
            self._held.hold(self._config)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._held.release()

    # -- addresses

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of all brokers, comma separated, at the first listener. The same over restarts."""
        return self.bootstrap_servers_of(next(iter(self._running.advertised)))

    def bootstrap_servers_of(self, listener: str) -> str:
        """HOST:PORT of all brokers for the clients of a listener, which is named as in `listeners`."""
        return ",".join(map(str, self._running.advertised[listener]))

    @property
    def listeners(self) -> str:
        """Where the brokers listen, as in the setting `listeners`, with real ports. With `advertised_listeners` clients
        get other addresses."""
        return spelled_out(self._running.listening.items())

    @property
    def http_address(self) -> str:
        """HOST:PORT of /metrics, /livez and /readyz; "" unless `http_listener` is set. The same over restarts."""
        return str(self._running.http_address or "")

    @property
    def broker_ids(self) -> list[int]:
        return [self._config.broker_id + index for index in range(self._config.brokers)]

    @property
    def data_dir(self) -> Path | None:
        return Path(self._config.data_dir) if self._config.data_dir else None

    def client_config(
        self,
        group: str | None = None,
        *,
        group_protocol: Literal["classic", "consumer"] = "classic",
        user: str | None = None,
        mechanism: str = MECHANISM,
    ) -> dict[str, str | int]:
        """Settings of a client of this server, in the names of Java and librdkafka (confluent-kafka).

        With `group`, the settings of a consumer that reads the topics from their start. In the classic protocol its
        heartbeats are frequent, so that it learns at once of a rebalance; in the consumer protocol the server chooses
        the interval. Raises ValueError for another protocol.

        Of a server with `security`, the settings are those of `user`, the first one if it is None, in librdkafka's
        names. A client with the `mechanism` OAUTHBEARER needs a callback that returns a `bearer_token` besides. Raises
        ValueError for an unknown user.
        """
        settings: dict[str, str | int] = {"bootstrap.servers": self.bootstrap_servers}
        if self._secured is not None:
            settings |= self._secured.client_settings(user, mechanism)
        if group is None:
            return settings
        if group_protocol not in ("classic", "consumer"):
            raise ValueError(f"group_protocol is {group_protocol!r}; it takes classic or consumer")
        settings |= {"group.id": group, "auto.offset.reset": "earliest"}
        if group_protocol == "consumer":
            return settings | {"group.protocol": "consumer"}
        return settings | {"heartbeat.interval.ms": HEARTBEAT_MS}

    def bearer_token(self, user: str, *, life_s: float = 3600.0) -> str:
        """A token for OAUTHBEARER, which a server with `security="SASL_SSL"` or "SASL_PLAINTEXT" accepts.

        The user need not be one of `users`. The client's session ends with the token, after `life_s` seconds. Raises
        RuntimeError without the package PyJWT (`pip install 'kohort[oauth]'`), and for a server without SASL.
        """
        if self._secured is None:
            raise RuntimeError('tokens take a server with security="SASL_SSL" or "SASL_PLAINTEXT"')
        return self._secured.bearer_token(user, life_s)

    # -- topics, records, groups

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        *,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; -1 means the server's own number. Raises ServerError, as TOPIC_ALREADY_EXISTS."""
        with self._cluster() as cluster:
            cluster.create_topic(name, partitions, replication_factor, configs)

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> list[tuple[int, int]]:
        """Append a record for each value. Returns the partition and the offset of each, in their order.

        The topic is created if it is missing, unless `auto_create_topics_enable` is False. Records go to `partition`,
        or to the partition of the `key` as in Java, or one by one to all partitions, beginning with 0. Texts are
        encoded in UTF-8. Raises ValueError for a missing topic or partition, and ServerError.
        """
        with self._cluster() as cluster:
            return calls.produce(cluster, topic, values, key, partition, self.now_ms())

    def lag(self, group: str, topic: str | None = None) -> int:
        """How many records the group has not committed, in all partitions that it commits or subscribes to.

        All records of a partition without a committed offset count. With `topic`, only that topic's partitions, also
        before the group exists. Raises ValueError if the group has no offsets and no subscribed topics, because 0
        would be wrong then.
        """
        with self._cluster() as cluster:
            return calls.lag(cluster, group, topic)

    def wait_stable(
        self,
        group: str,
        members: int | None = None,
        *,
        timeout_s: float = 10.0,
        poll: Callable[[], object] | None = None,
    ) -> GroupDescription:
        """Wait until every member has its whole assignment; with `members`, and the group has exactly that many.

        Returns the group with its members and their partitions. `poll` is called again and again meanwhile, for
        clients that take part in a rebalance only in a call of their own. Raises TimeoutError, which names the
        members that the group waits for.
        """
        with self._cluster() as cluster:
            return calls.wait_stable(cluster, group, members, timeout_s, poll)

    def _cluster(self) -> Cluster:
        bootstrap = self.bootstrap_servers if self._secured is None else self.bootstrap_servers_of(ADMIN)
        return Cluster(bootstrap, client_id="kohort-testing", api_timeout_ms=CALL_MS)

    def now_ms(self) -> int:
        """The server's time, in milliseconds since 1970."""
        return self._clock.now() if self._clock is not None else time.time_ns() // 1_000_000

    # -- failovers

    def move_partition(self, topic: str, partition: int, to_broker: int) -> None:
        """Make another broker the leader; clients get NOT_LEADER_OR_FOLLOWER. ValueError if one is unknown."""
        self._call(self._running.move_partition(topic, partition, to_broker))

    def move_group(self, group: str, to_broker: int) -> None:
        """Make another broker the coordinator of a group and its whole shard; clients get NOT_COORDINATOR."""
        self._call(self._running.move_group(group, to_broker))

    def stop_broker(self, broker_id: int, *, failover: bool = False) -> None:
        """Close one broker's listener and break its connections.

        The broker stays leader and coordinator, as one that is cut off from its clients. With `failover` the other
        brokers take over its partitions and groups, and Metadata does not list it: as in a cluster that has noticed
        that a broker died. Raises ValueError for an unknown broker, and if no other broker can take over.
        """
        self._call(self._running.listener_down(broker_id, failover=failover))

    def start_broker(self, broker_id: int) -> None:
        """Open its listener again, on the same port. After a failover, partitions and groups stay where they are."""
        self._call(self._running.listener_up(broker_id))

    def renew_certificates(self) -> None:
        """Read the files of TLS again, as on SIGHUP. The next connections get the new certificates."""

        async def renew() -> None:
            self._running.renew_certificates()

        self._call(renew())

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("this server is not running")
        return self._server

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)
