"""A server in a thread of the test's process, with an event loop of its own. Call its methods from any thread.

It has Kafka's defaults with three exceptions: it keeps its data in memory, listens on free ports of 127.0.0.1, and no
rebalance waits for more members (group.initial.rebalance.delay.ms=0, group.storm.rebalance.delay.ms=0). Tests whose
members die need a shorter group_min_session_timeout_ms than Kafka's six seconds, or a `ManualClock`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from kohort.config import Config, check, with_values
from kohort.server.serve import loop_factory
from kohort.server.server import Server
from kohort.storage.memory import MemoryStorage
from kohort.testing.clock import ManualClock

_T = TypeVar("_T")

START_S = 20.0
STOP_S = 10.0


class KohortServer:
    """Use it as a context manager, or call `start` and `stop`. Takes any server setting as a keyword, with its typed
    value: `num_partitions=6`, or with the dotted name `**{"num.partitions": 6}`.

    `data_dir` keeps the data on disk; without it, memory keeps it for as long as this object lives, over `restart`
    and over `kill` and `start`. `clock` replaces the system's clock: tests advance it instead of waiting for a session
    to end. Raises ConfigError for a bad setting.
    """

    def __init__(
        self, *, data_dir: str | os.PathLike[str] = "", clock: ManualClock | None = None, **settings: Any
    ) -> None:
        settings = {name.replace(".", "_"): value for name, value in settings.items()}
        settings.setdefault("listeners", "127.0.0.1:0")
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        settings.setdefault("group_storm_rebalance_delay_ms", 0)
        self._config = check(Config(data_dir=os.fspath(data_dir), **settings))
        self._clock = clock
        self._memory: MemoryStorage | None = None
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    # -- start and stop

    def start(self) -> Self:
        """Start, and return when clients can connect. Raises the error that prevents the start."""
        if self._thread is not None:
            raise RuntimeError("this server is already running")
        storage = None
        if not self._config.data_dir:
            storage = self._memory = self._memory or MemoryStorage()
        server = Server(self._config, storage, self._clock)
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(server, started), name="kohort-server", daemon=True)
        self._thread.start()
        try:
            started.result(START_S)
        except BaseException:
            self._thread.join(STOP_S)
            self._thread = None
            raise
        self._server = server
        # The server keeps these ports over restarts.
        self._config = with_values(self._config, listeners=",".join(map(str, server.addresses)))
        return self

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
        try:
            self._call(how(server))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(STOP_S)
            self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- addresses

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of all brokers, comma separated. The same over restarts."""
        return ",".join(map(str, self._running.advertised))

    @property
    def listeners(self) -> str:
        """HOST:PORT where the brokers listen, comma separated; not what clients get with `advertised_listeners`."""
        return ",".join(map(str, self._running.addresses))

    @property
    def broker_ids(self) -> list[int]:
        return [self._config.broker_id + index for index in range(self._config.brokers)]

    @property
    def data_dir(self) -> Path | None:
        return Path(self._config.data_dir) if self._config.data_dir else None

    # -- failovers

    def move_partition(self, topic: str, partition: int, to_broker: int) -> None:
        """Make another broker the leader; clients get NOT_LEADER_OR_FOLLOWER. ValueError if one is unknown."""
        self._call(self._running.move_partition(topic, partition, to_broker))

    def move_group(self, group: str, to_broker: int) -> None:
        """Make another broker the coordinator of a group and its whole shard; clients get NOT_COORDINATOR."""
        self._call(self._running.move_group(group, to_broker))

    def stop_broker(self, broker_id: int) -> None:
        """Close one broker's listener and break its connections. The broker stays leader and coordinator."""
        self._call(self._running.listener_down(broker_id))

    def start_broker(self, broker_id: int) -> None:
        """Open its listener again, on the same port."""
        self._call(self._running.listener_up(broker_id))

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("this server is not running")
        return self._server

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S)
