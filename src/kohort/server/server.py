"""A server: storage, broker, turn loop, connections and listeners, started and stopped together.

Start: open the storage (and its lock), bind the sockets, load the logs, commit the first turn, and only then listen.
Stop: stop listening, let the broker answer parked requests, let the answers leave, close the storage.
Failure: no answer leaves any more, everything is dropped, `wait_failed` returns the cause. A restart is a replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from kohort.broker.broker import Broker
from kohort.broker.nodes import Endpoint
from kohort.broker.sharing.slots import Slots
from kohort.broker.start import Replaying, unwatched
from kohort.broker.turn import BrokerPresence, MoveGroup, MovePartition, Release, Shutdown
from kohort.broker.turn_schedule import TurnObserver
from kohort.broker.upstream.following import check_owner
from kohort.config import (
    ALL,
    PLAINTEXT,
    Address,
    Config,
    ConfigError,
    check,
    http_address,
    listeners_of,
    names_of,
    with_addresses,
)
from kohort.server import log
from kohort.server.arrivals import Acceptor, Arrivals
from kohort.server.assignor_plugins import serving
from kohort.server.clock import Clock, SystemClock
from kohort.server.connection import Connection
from kohort.server.connections import Connections
from kohort.server.listeners import AddedListeners, BoundSockets, Listener, ListenFailed, advertised
from kohort.server.memory.process import Queues
from kohort.server.off_loop import OffLoop
from kohort.server.reading import Reading
from kohort.server.slow_requests import SlowRequests
from kohort.server.turns import TurnLoop
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import Fenced, Storage, StorageError, Unavailable, WrongDirectory
from kohort.wire.errors import ProtocolError

if TYPE_CHECKING:
    from kohort.broker.state import BrokerState
    from kohort.server.database.sharing import Sharing
    from kohort.server.http.health import Check
    from kohort.server.http.pages import HttpPages
    from kohort.server.security.entrance import Entrance
    from kohort.server.security.tls_link import Inside
    from kohort.storage.postgres.engine import PostgresStorage

FLUSH_S = 1.5
"""How long a stop waits for answers to leave."""
STOP_S = 10.0
"""How long a stop waits for the last turn: a storage on another machine may not answer."""


class Front(Protocol):
    """What stands between the sockets and the connections: the gateway."""

    def attach(self, server: Server, state: BrokerState, connections: Connections, turns: TurnLoop) -> None:
        """The broker is loaded and has had its first turn. Nothing listens yet."""

    def around(self, connection: Connection, place: int) -> Inside:
        """The protocol of a client's bytes, some of which it hands to `connection`. `place`: see `AddedListeners`."""

    def checks(self) -> Sequence[Check]:
        """Of /readyz."""

    def stop(self) -> None:
        """The last turn is over: give up the answers that cannot leave soon."""

    def close(self) -> None: ...


class Server:
    """Runs in one event loop. After `stop`, `kill` or a failure it cannot be started again; make another one."""

    def __init__(
        self,
        config: Config,
        storage: Storage | None = None,
        clock: Clock | None = None,
        *,
        observers: Sequence[TurnObserver] = (),
        replaying: Replaying = unwatched,
        front: Front | None = None,
    ) -> None:
        """`observers` see the turns; `replaying` is called while the stored logs are read."""
        self.config = check(config)
        self.listening: dict[str, list[Address]] = {}
        """Where the brokers listen, with real ports, by the name of the listener."""
        self.advertised: dict[str, list[Address]] = {}
        """The addresses that clients get, by the name of the listener they come by."""
        self._storage = storage
        self._clock = clock or SystemClock()
        self._observers = tuple(observers)
        self._replaying = replaying
        self._front = front
        self._broker: Broker
        self._turns: TurnLoop
        self._arrivals: Arrivals
        self._connections: Connections
        self._listeners: list[Listener] = []
        self.added: AddedListeners
        self._entrance: Entrance | None = None
        self._http: HttpPages | None = None
        self._secured: frozenset[str] = frozenset()
        """Names of the listeners with TLS or SASL."""
        self._failure: asyncio.Future[Exception]
        self._sharing: Sharing | None = None
        self._over = False
        self._limited = log.LimitedLog()

    # -- start

    async def start(self) -> None:
        """Raises StorageError, WrongDirectory, ListenFailed, ConfigError; then nothing is left open."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unexpected)
        self._failure = loop.create_future()
        self.config = _with_addresses(self.config)
        if self.config.cluster_serving == ALL:
            from kohort.server.database.sharing import with_all_serving

            self.config = with_all_serving(self.config)
        try:
            failed = partial(self._failed_in_thread, loop)
            if self._storage is None and not self.config.storage:
                self._storage = open_storage(self.config, failed)
            self._bind()
            storage = self._storage or await self._own_database(failed)
            self._assemble(storage)
            if self._sharing is not None:
                await self._sharing.begin()
            else:
                await self._turns.control(None)
            if self._front is not None:
                self.added = AddedListeners(self.config, self._listeners, self._acceptor)
                self._front.attach(self, self._broker.state, self._connections, self._turns)
            if self.config.storage and self._sharing is None:
                from kohort.server.database.node import watch_others

                watch_others(storage, self._turns.arrive)
            for listener in self._listeners:
                listener.up()
            if self._http is not None:
                await self._http.up(
                    self._broker.state,
                    self._connections,
                    down=self._brokers_down,
                    writer_runs=lambda: self._turns.writer_runs,
                    failed_logins={} if self._entrance is None else self._entrance.door.failures,
                    wake=self._turns.wake,
                    more_checks=lambda: () if self._front is None else self._front.checks(),
                )
            if self._failure.done():
                raise ConnectionAbortedError("the server has failed")
        except ConnectionAbortedError:
            self._release()
            raise self._failure.result() from None
        except BaseException:
            self._release()
            raise

    async def _own_database(self, failed: Callable[[Exception], None]) -> PostgresStorage:
        """Returns when this node owns the data, perhaps after days as a stand-by."""
        from kohort.server.database.node import storage_of

        [place] = self._endpoints()
        self._storage = database = storage_of(self.config, place, failed)
        if self._http is not None:
            await self._http.stand_by()
        await asyncio.to_thread(database.open)
        return database

    def _bind(self) -> None:
        may_be_insecure = self.config.allow_insecure_listeners
        all_settings = listeners_of(self.config)
        secured = [settings for settings in all_settings if settings.protocol != PLAINTEXT]
        if secured:
            from kohort.server.security.entrance import Entrance  # TLS is loaded only where it is used

            self._entrance = Entrance(self.config, secured, self._around)
            self._secured = frozenset(settings.name for settings in secured)
        for settings in all_settings:
            bound = []
            for index in range(self.config.brokers):
                broker_id = self.config.broker_id + index
                sockets = BoundSockets(settings, index, may_be_insecure=may_be_insecure)
                sockets.bind()
                acceptor = partial(self._acceptor, broker_id, settings.name)
                self._listeners.append(Listener(sockets, broker_id, acceptor))
                bound.append(sockets.bound)
            self.listening[settings.name] = bound
            told = advertised(settings, bound)
            if told is not None:
                self.advertised[settings.name] = told
        address = http_address(self.config)
        if address is not None:
            from kohort.server.http.pages import HttpPages  # few servers have the listener

            self._http = HttpPages(self.config, address, self._clock)
            self._http.door.bind()

    def _brokers_down(self) -> list[int]:
        return [listener.broker_id for listener in self._listeners if not listener.is_up]

    def _acceptor(self, broker_id: int, listener: str, place: int = 0) -> Acceptor:
        return Acceptor(self._arrivals, broker_id, listener, partial(self._protocol, broker_id, listener, place))

    def _protocol(self, broker_id: int, listener: str, place: int) -> asyncio.Protocol:
        if listener in self._secured and self._entrance is not None:
            return self._entrance.protocol(broker_id, listener, place)
        return cast(asyncio.Protocol, self._around(Connection(self._connections, broker_id, listener), place))

    def _around(self, connection: Connection, place: int) -> Connection | Inside:
        return connection if self._front is None else self._front.around(connection, place)

    def _endpoints(self) -> list[Endpoint]:
        """What clients learn of each broker."""
        racks = [rack.strip() or None for rack in self.config.broker_rack.split(",")]
        if len(racks) == 1:
            racks *= self.config.brokers
        endpoints = []
        for index, rack in enumerate(racks):
            places = {name: (told[index].host, told[index].port) for name, told in self.advertised.items()}
            host, port = next(iter(places.values()))
            endpoints.append(Endpoint(host, port, rack, places))
        return endpoints

    def _assemble(self, storage: Storage) -> None:
        assignors, unfit = serving(self.config)
        for why in unfit:
            log.warning("an assignor is left out", why=why)
        is_in_memory = isinstance(storage, MemoryStorage)
        self._broker = Broker(
            self.config,
            storage,
            now=self._clock.now(),
            random=random.Random(),
            endpoints=self._endpoints(),
            assignors=assignors,
            stopwatch=time.perf_counter_ns,
            parks_reads=not is_in_memory,
            slots=Slots(self.config.broker_id) if self.config.cluster_serving == ALL else None,
        )
        lease = storage.acquire()
        try:
            self._broker.load(self._replaying)
        except ProtocolError as error:
            raise StorageError(
                f"the stored data ({self.config.data_dir or 'the database'}) holds a record that makes no sense "
                f"({error}); restore it from a backup, or start with an empty one"
            ) from error
        check_owner(self._broker.state.catalog, self.config.data_dir, is_gateway=self._front is not None)
        if (level := self._broker.state.log_level) != self.config.log_level:
            log.set_level(level)
        self._turns = TurnLoop(
            self._broker,
            storage,
            lease,
            in_place=is_in_memory,
            clock=self._clock,
            began=lambda: self._connections.turn_began(),
            deliver=self._deliver,
            mute=lambda mutes: self._connections.mute(mutes),
            hand_out=lambda tasks: self._off_loop.start(tasks),
            read=lambda asked: self._reading.start(asked),
            failed=self.fail,
            observers=self._turn_observers(),
        )
        self._off_loop = OffLoop(self._turns.arrive, self.config.group_consumer_assignor_timeout_ms)
        failed = partial(self._failed_in_thread, asyncio.get_running_loop())
        self._reading = Reading(storage, self._turns.arrive, failed)
        self._connections = Connections(
            self.config,
            arrive=self._turns.arrive if self._http is None else self._http.requests.watching(self._turns.arrive),
            turns=self._turns,
            waiting_bytes=self._broker.waiting.bytes_of,
            is_ready=self._broker.waiting.is_ready,
            is_occupied=self._broker.waiting.is_occupied,
            share_answers=self._broker.works.share,
            config_of=self._broker.state.catalog.config_of,
        )
        if self.config.cluster_serving == ALL:
            from kohort.server.database.sharing import Sharing

            shared = cast("PostgresStorage", storage)
            self._sharing = Sharing(shared, self._broker.state, self._turns.control, self._turns.arrive, self.fail)
        self._arrivals = Arrivals(self._broker.state.meters, self._clock, self._connections)
        if self._entrance is not None:
            self._entrance.open(self._connections, self._broker)

    def _deliver(self, releases: Sequence[Release]) -> None:
        self._connections.deliver(releases if self._sharing is None else self._sharing.taken(releases))

    def _turn_observers(self) -> list[TurnObserver]:
        found = list(self._observers)
        if self._http is not None:
            found += self._http.observers
        if limit_ms := self.config.log_slow_request_ms:
            found.append(
                SlowRequests(limit_ms, lambda: self._turns.about_ms, lambda client: self._connections.peer_of(client))
            )
        return found

    # -- while it runs

    @property
    def queues(self) -> Queues:
        works, reads = self._broker.works, self._broker.state.reads
        return Queues(self._connections.inflow, self._connections.outflow, lambda: works.size + reads.size)

    @property
    def cluster_id(self) -> str:
        return self._broker.state.catalog.cluster_id

    async def move_partition(self, topic: str, partition: int, to_broker: int) -> None:
        """Make another broker the partition's leader. Raises ValueError for an unknown topic, partition or broker."""

        def check_names() -> None:
            self._check_broker(to_broker)
            found = self._broker.state.topic(topic)
            if found is None or not 0 <= partition < len(found.partitions):
                raise ValueError(f"there is no partition {partition} of a topic {topic}")

        await self._turns.control(MovePartition(topic, partition, to_broker), check_names)

    async def move_group(self, group: str, to_broker: int) -> None:
        """Make another broker the group's coordinator (and that of all groups of the same shard)."""
        await self._turns.control(MoveGroup(group, to_broker), lambda: self._check_broker(to_broker))

    async def listener_down(self, broker_id: int, *, failover: bool = False) -> None:
        """Close a broker's listeners and its connections.

        With `failover` the other brokers take over its partitions and groups, and clients do not learn of it any more;
        without, it stays the leader. Raises ValueError for an unknown broker, and if no other one can take over."""
        self._check_broker(broker_id)
        if failover and self._broker.state.absent | {broker_id} >= self._broker.state.node_by_id.keys():
            raise ValueError(f"no other broker can take over from broker {broker_id}")
        for listener in self._of_broker(broker_id):
            listener.down()
        # The end of a connection reaches the broker in a turn. The caller wants all connections gone.
        listeners = self._of_broker(broker_id)
        while (opened := self._connections.of_broker(broker_id)) or any(listener.is_busy for listener in listeners):
            for connection in opened:
                connection.abort()
            await asyncio.sleep(0)
        if failover:
            await self._turns.control(BrokerPresence(broker_id, present=False))

    async def listener_up(self, broker_id: int) -> None:
        """Listen on the same addresses again."""
        self._check_broker(broker_id)
        for listener in self._of_broker(broker_id):
            listener.up()
        if broker_id in self._broker.state.absent:
            await self._turns.control(BrokerPresence(broker_id, present=True))

    @property
    def http_address(self) -> Address | None:
        """The address of /metrics, /livez and /readyz; None if the server has no HTTP listener."""
        return None if self._http is None else self._http.door.address

    @property
    def has_tls(self) -> bool:
        return self._entrance is not None and self._entrance.has_tls

    def renew_certificates(self) -> None:
        """Read the files of certificates and keys again, for new connections."""
        if self._entrance is not None:
            self._entrance.certificates.renew()

    def _of_broker(self, broker_id: int) -> list[Listener]:
        return [listener for listener in self._listeners if listener.broker_id == broker_id]

    def _check_broker(self, broker_id: int) -> None:
        if not 0 <= broker_id - self.config.broker_id < self.config.brokers:
            raise ValueError(f"there is no broker {broker_id}")

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the server; None after a signal or `stop`."""
        return self._failure.result() if self._failure.done() else None

    async def wait_failed(self) -> Exception:
        """Wait until the server fails. Returns the exception."""
        return await asyncio.shield(self._failure)

    # -- the end

    async def stop(self) -> None:
        """Stop gracefully. Does nothing on a server that has stopped."""
        if self._over:
            return
        if self._http is not None:
            self._http.stopping = True
        for listener in self._listeners:
            listener.close()
        try:
            async with asyncio.timeout(STOP_S):
                await self._turns.control(Shutdown())
            if self._front is not None:
                self._front.stop()
            await self._connections.drain(FLUSH_S)
        except TimeoutError:
            log.warning(
                "stopped while the storage did not answer", hint="nothing that was not durable was acknowledged"
            )
        except ConnectionAbortedError:
            return  # it has failed meanwhile, and released everything
        self._release()

    def kill(self) -> None:
        """End as in a crash: no request is answered; committed data stays."""
        self._release()

    def _failed_in_thread(self, loop: asyncio.AbstractEventLoop, error: Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(self.fail, error)

    def fail(self, error: Exception) -> None:
        """Stop at once, because of this error."""
        if not self._failure.done():
            self._failure.set_result(error)
        self.kill()

    def _release(self) -> None:
        if self._over:
            return
        self._over = True
        if self._front is not None:
            self._front.close()
        for listener in self._listeners:
            listener.close()
        if self._http is not None:
            self._http.close()
        if self._sharing is not None:
            self._sharing.stop()
        if self._storage is not None:
            self._storage.abandon()
        if hasattr(self, "_turns"):
            self._turns.stop()
            self._off_loop.stop()
            self._reading.stop()
        if self._entrance is not None:
            self._entrance.close()
        if hasattr(self, "_arrivals"):
            self._arrivals.close()
            self._connections.abort_all()
        if self._storage is not None:
            self._storage.close()

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """An exception that the event loop caught. A network error is a line in the log, any other is a bug."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.fail(error)
        else:
            self._limited.warning("network trouble", what=str(context.get("message")), error=str(error))


def _with_addresses(config: Config) -> Config:
    """Host names are looked up once. Raises ConfigError."""
    setting = "max.connections.per.ip.overrides"
    try:
        return replace(config, max_connections_per_ip_overrides=with_addresses(config.max_connections_per_ip_overrides))
    except OSError as error:
        names = ", ".join(names_of(config.max_connections_per_ip_overrides))
        raise ConfigError(f"{setting} names {names}: {error.strerror}; name addresses instead") from None


def open_storage(config: Config, failed: Callable[[Exception], None]) -> Storage:
    """The data of a directory, or in memory. `failed` is called in a thread with an error that ends the storage between
    two commits. Raises StorageError."""
    if not config.data_dir:
        return MemoryStorage()
    from kohort.storage.sqlite import SqliteStorage  # not imported for data in memory

    return SqliteStorage(Path(config.data_dir).expanduser(), log, failed)


__all__ = ["Fenced", "ListenFailed", "Server", "StorageError", "Unavailable", "WrongDirectory", "open_storage"]
