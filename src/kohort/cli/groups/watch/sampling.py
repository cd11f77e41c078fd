"""Surveys at an interval, in a thread of their own: a slow broker delays neither Ctrl-C nor the clock on the screen.

A cluster that cannot be reached is a result like a survey, and the next attempt follows after the interval.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from kohort.cli.groups.lookup import selected
from kohort.cli.interrupt import interrupts
from kohort.client.admin.survey import Survey, Surveyor
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError

LOOK_S = 0.1
"""How often the command looks whether Ctrl-C has asked for the end."""


class Sampler:
    """Takes surveys of the groups with these names. `stories` as for a `Surveyor`."""

    def __init__(self, cluster: Cluster, names: Sequence[str], stories: int) -> None:
        self._cluster = cluster
        self._names = names
        self._surveyor = Surveyor(cluster, stories=stories, with_lag=True)

    def take(self) -> Survey:
        """Raises KafkaError."""
        return self._surveyor.survey(selected(self._cluster, self._names, shares=True))

    def every(self, seconds: float) -> Iterator[Survey | KafkaError]:
        """A result after each interval, until Ctrl-C. From the first result on, only the thread uses the cluster."""
        results: SimpleQueue[Survey | Exception] = SimpleQueue()
        threading.Thread(target=self._run, args=(seconds, results), name="surveys", daemon=True).start()
        while not interrupts.asked():
            try:
                result = results.get(timeout=LOOK_S)
            except Empty:
                continue
            if isinstance(result, Exception) and not isinstance(result, KafkaError):
                raise result
            yield result

    def _run(self, seconds: float, results: SimpleQueue[Survey | Exception]) -> None:
        due = time.monotonic() + seconds
        while not interrupts.wait(max(due - time.monotonic(), 0)):
            due = time.monotonic() + seconds
            try:
                results.put(self.take())
            except KafkaError as error:
                results.put(error)
                if not error.retriable:
                    return
            except Exception as error:
                results.put(error)
                return
