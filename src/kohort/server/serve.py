"""The process of a server: signals, the ready line, the error message and the exit code.

The first SIGTERM or SIGINT stops gracefully, a second one at once. SIGHUP renews the certificates of TLS listeners. An
error is one line on stderr that says what failed, which file or address, and what to do. Only a bug shows a traceback.
Exit codes are those of sysexits.h where it has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module

from kohort import compiled
from kohort.config import KAFKA, Config, ConfigError, is_everybody_anonymous, spelled_out
from kohort.server import log, open_files
from kohort.server.memory.collector import Collector
from kohort.server.memory.process import ProcessMemory, keep_freed_memory, resident_memory, return_freed_memory
from kohort.server.server import Fenced, Front, ListenFailed, Server, StorageError, Unavailable, WrongDirectory
from kohort.server.supervisor import Supervisor, supervisor_of

STOPPED = 0
BAD_SETTING = 2
CANNOT_LISTEN = 69
BUG = 70
OUT_OF_RESOURCES = 71
STORAGE_FAILED = 74
TRY_AGAIN = 75

SWITCH_S = 0.001
"""The event loop takes the interpreter's lock back several times in a turn. With Python's default, it waits 5 ms for
another thread each time."""
STAND_BY_S = 10.0
"""The supervisor learns after this time that a node is up, although it waits for the data."""
_NO_THREAD = "can't start new thread"
"""Python's text of the RuntimeError."""


def run(config: Config, front: Front | None = None) -> int:
    """Serve until a signal or a failure ends it. Returns the exit code. `front`: see `Server`."""
    log.configure(config.log_level, config.log_format)
    # A client of a gateway may have a connection to the upstream cluster besides.
    _allow_connections(config.max_connections, 1 if front is None else 2)
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(config, front))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: it spends about a fifth less on a request."""
    try:
        return import_module("uvloop").new_event_loop  # type: ignore[no-any-return]
    except ImportError:
        return None


async def _serve(config: Config, front: Front | None) -> int:
    supervisor = supervisor_of(os.environ)
    # A turn that waits for a database is not helped by a restart, so the watchdog does not watch it.
    observers = () if config.storage else supervisor.observers
    server = Server(config, observers=observers, replaying=supervisor.replaying, front=front)
    signalled = _on_signals()
    _on_thread_errors(server)
    starting = asyncio.ensure_future(server.start())
    timeout = STAND_BY_S if config.storage else None
    await asyncio.wait((signalled, starting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    is_stand_by = not starting.done() and not signalled.done()
    if is_stand_by:
        supervisor.ready("A stand-by: waiting for the data")
        await asyncio.wait((signalled, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("stopping", signal=signalled.result())
        server.kill()
        await asyncio.wait((starting,))
        return STOPPED
    if (failure := starting.exception()) is not None:
        if not isinstance(failure, Exception):
            raise failure
        return _explain(failure, supervisor)
    if (server.has_tls or supervisor.is_there) and hasattr(signal, "SIGHUP"):  # systemctl reload sends it
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.renew_certificates)
    _say_ready(server, front)
    status = f"Listening on {spelled_out(server.listening.items())}"
    if is_stand_by:
        supervisor.tell(f"STATUS={status}")
    else:
        supervisor.ready(status)
    Collector(time.monotonic).begin()
    # Records in memory have no limit.
    if (config.data_dir or config.storage) and (resident_bytes := resident_memory()) is not None:
        memory = ProcessMemory(
            config.memory_max_bytes, server.queues, resident_bytes, return_freed_memory, time.monotonic
        )
        memory.begin()
    failed = asyncio.ensure_future(server.wait_failed())
    await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        return _explain(failed.result(), supervisor)
    failed.cancel()
    log.info("stopping", signal=signalled.result())
    supervisor.stopping(signalled.result())
    await server.stop()
    log.info("stopped")
    return STOPPED


def _on_signals() -> asyncio.Future[str]:
    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[str] = loop.create_future()

    def received(number: signal.Signals) -> None:
        if signalled.done():
            os._exit(128 + number)
        signalled.set_result(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received, number)
    return signalled


def _on_thread_errors(server: Server) -> None:
    """No thread ends unseen: an exception that ends one stops the server, as any bug does."""
    loop = asyncio.get_running_loop()

    def ended(thread: threading.ExceptHookArgs) -> None:
        error = thread.exc_value
        failure = error if isinstance(error, Exception) else RuntimeError(f"a thread has ended: {error!r}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(server.fail, failure)

    threading.excepthook = ended


def _say_ready(server: Server, front: Front | None) -> None:
    config = server.config
    if config.without_effect:
        log.warning("settings without effect", names=", ".join(config.without_effect))
    if front is None and is_everybody_anonymous(config):
        log.warning(
            "ACLs are on, but no listener authenticates its clients: each is User:ANONYMOUS, who is no super user",
            hint="set a listener with SASL or ssl.client.auth (docs/secure.md), or name User:ANONYMOUS in super.users",
        )
    told = {}
    if server.advertised != server.listening:
        told["clients_are_told"] = spelled_out(server.advertised.items())
    if server.http_address is not None:
        told["http"] = str(server.http_address)
    if config.compatibility == KAFKA:
        told["compatibility"] = KAFKA
    log.info(
        "kohort is ready",
        listeners=spelled_out(server.listening.items()),
        **told,
        brokers=config.brokers,
        **_where(config),
        cluster_id=server.cluster_id,
        runs=compiled.running(),
        took_ms=_process_age_ms(),
    )


def _where(config: Config) -> dict[str, str]:
    """Where the data is."""
    if config.storage:
        from kohort.storage.postgres.connections import shown

        return {"storage": shown(config.storage)}
    return {"data_dir": config.data_dir or "none (in memory)"}


def _explain(error: Exception, supervisor: Supervisor | None = None) -> int:
    """Write to stderr what ended the server, and tell the supervisor. Returns the exit code."""
    match error:
        case ConfigError() | WrongDirectory():
            code = BAD_SETTING
        case Fenced() | Unavailable():
            code = TRY_AGAIN
        case StorageError():
            code = STORAGE_FAILED
        case ListenFailed():
            code = CANNOT_LISTEN
        case MemoryError() | OSError(errno=errno.ENOMEM):
            code = OUT_OF_RESOURCES
            error = RuntimeError(
                "out of memory: the machine, the container or ulimit -v gives this process no more. All acknowledged "
                "data is on disk, and a restart continues from there; allow more memory, or fewer and smaller "
                "connections, requests and groups"
            )
        case RuntimeError() if str(error) == _NO_THREAD:
            code = OUT_OF_RESOURCES
            error = RuntimeError(
                "the system starts no more threads; raise the limit of processes and threads (ulimit -u, or pids.max "
                "of the container)"
            )
        case _:
            code = BUG
            print("".join(traceback.format_exception(error)), end="", file=sys.stderr)
            error = RuntimeError(
                "stopped by a bug, before anything wrong could be answered or written; please report the lines above. "
                "All acknowledged data is on disk, and a restart continues from there"
            )
    print(f"kohort: {error}", file=sys.stderr, flush=True)
    if supervisor is not None:
        supervisor.failed(str(error))
    return code


def _allow_connections(wanted: int, files_each: int) -> None:
    possible = open_files.raise_limit(wanted * files_each) // files_each
    if possible < wanted:
        log.warning(
            "max.connections cannot be reached",
            max_connections=wanted,
            possible=possible,
            open_files=open_files.limit(),
            hint="raise the hard limit of open files (ulimit -Hn, LimitNOFILE), or lower max.connections",
        )


def _process_age_ms() -> int:
    """Since the process began, imports included, if the system tells; or else the process's CPU time."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        return round((time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1000)
    except (OSError, AttributeError, ValueError, IndexError):
        return round(time.process_time() * 1000)
