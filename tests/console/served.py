"""A console that serves on a port, in a thread."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kohort.client.cluster import Cluster
from kohort.console.app import create_app
from kohort.console.listening import open_socket, url_of
from kohort.console.reading.refresher import Refresher
from kohort.console.reading.snapshot import GroupRow
from kohort.console.serve import serve


class ServedConsole:
    def __init__(self, bootstrap: str, *, tls: ssl.SSLContext | None = None, **settings: Any) -> None:
        """`settings` are arguments of `create_app`."""
        self._end = threading.Event()
        self._refresher = Refresher(lambda: Cluster(bootstrap), every_s=0.1)
        listening = open_socket("127.0.0.1", 0)
        self.url = url_of(listening, https=tls is not None).rstrip("/")
        app = create_app(lambda: Cluster(bootstrap), bootstrap, self._refresher, ending=self._end.is_set, **settings)
        self._thread = threading.Thread(target=serve, args=(app, listening, self._end.wait, tls))

    def wait_for_groups(self, wanted: Callable[[Mapping[str, GroupRow]], bool]) -> None:
        """Wait until the console has read such groups."""
        while not (self._refresher.snapshot.number and wanted(self._refresher.snapshot.groups)):
            time.sleep(0.01)

    def __enter__(self) -> ServedConsole:
        self._refresher.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._refresher.stop()
        self._thread.join()
