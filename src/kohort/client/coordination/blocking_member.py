"""The common part of blocking elections and shardings: an asyncio coordinator in a thread of its own.

The thread runs an event loop, which sends the heartbeats whatever the program does. Calls may come from any thread.
The thread is a daemon. At the interpreter's exit, open members end their work and leave as in `close`, if that takes
less than EXIT_S (`client/concurrency/loop_thread.py`). A child of fork does not have the thread; it needs members of
its own.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

from kohort.client.concurrency.loop_thread import LoopThread
from kohort.client.coordination.callback_order import Generation
from kohort.client.coordination.coordinator import Coordinator
from kohort.client.errors import Closed, Misuse

T = TypeVar("T")
Inner = TypeVar("Inner", bound=Coordinator)


class BlockingMember(ABC, Generic[Inner]):
    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._gate = threading.RLock()
        """Held to start and to close. A signal handler may close a member that its thread is closing."""
        self._thread: LoopThread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<blocking {repr(self._inner)[1:]}"

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        return self._inner.group_id

    @property
    def member_id(self) -> str:
        """As Coordinator.member_id."""
        return self._inner.member_id

    @property
    def generation(self) -> Generation:
        """As Coordinator.generation."""
        return self._inner.generation

    @property
    def lease_left_ms(self) -> int:
        """As Coordinator.lease_left_ms."""
        return self._inner.lease_left_ms

    @property
    def lasting_generations(self) -> bool:
        """As Coordinator.lasting_generations."""
        return self._inner.lasting_generations

    # -- what is done; from any thread

    def start(self) -> None:
        """Begin to take part, where a `with` does not fit; `close` ends it. Starting twice does nothing."""
        with self._gate:
            if self._closed:
                raise Closed(self._left("start"))
            if self._thread is None:
                self._thread = LoopThread(f"kohort-group-{self.group_id}", self._leave)
                self._thread.run(self._begin(), self._left("start"))
            else:
                self._thread.refuse_fork("start", "member")

    def close(self) -> None:
        """End the work, leave the group, end the thread. May be called in any thread, also twice."""
        if self._thread is not None:
            self._thread.refuse_fork("close", "member")
        with self._gate:
            if self._closed:
                return
            self._closed = True
            if self._thread is not None:
                try:
                    self._thread.run(self._leave(), self._left("close"))
                finally:
                    self._thread.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside

    def _do(self, call: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the loop's thread. Interrupting the wait cancels the work."""
        if self._closed:
            raise Closed(self._left(call))
        if self._thread is None:
            raise Misuse(f"{call}: use the member of group {self.group_id} in a `with`, or call `start` first")
        self._thread.refuse_fork(call, "member")
        return self._thread.run(work(), self._left(call))

    def _left(self, call: str) -> str:
        return f"{call}: this process has left group {self.group_id}"

    # -- in the loop's thread

    @abstractmethod
    async def _begin(self) -> None: ...

    @abstractmethod
    async def _leave(self) -> None: ...
