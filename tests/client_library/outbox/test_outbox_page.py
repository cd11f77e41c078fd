"""The programs of docs/how-to/outbox.md run unchanged, except for the addresses, and examples/outbox_orders.py."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from committed_records import committed
from page_programs import programs
from running_tasks import wait_until

from kohort.client.cluster import Cluster
from kohort.client.outbox import BlockingOutbox
from kohort.testing import KohortServer

EXAMPLE = Path(__file__).parents[3] / "examples" / "outbox_orders.py"


def defined(number: int, **addresses: str) -> dict[str, Any]:
    """What a program of the page defines, with other addresses."""
    program = programs("how-to/outbox.md")[number]
    for written, used in addresses.items():
        assert PLACES[written] in program
        program = program.replace(PLACES[written], used)
    found: dict[str, Any] = {"__name__": "page"}
    exec(program, found)
    return found


PLACES = {"servers": "127.0.0.1:9092", "postgres": "postgresql://localhost/shop", "sqlite": "shop.sqlite"}


def test_the_page_has_two_programs() -> None:
    assert len(programs("how-to/outbox.md")) == 2


def test_the_orders_of_asyncpg(postgres_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(postgres_address) as connection:
        connection.execute("CREATE TABLE orders (number serial PRIMARY KEY, item text)")
    with KohortServer() as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("orders", 1)
        page = defined(0, servers=server.bootstrap_servers, postgres=postgres_address)
        for number in (1, 2):
            asyncio.run(page["main"]())
            assert capsys.readouterr().out == f"took order {number}\n"
        assert committed(cluster, "orders") == ["order 1: tea", "order 2: tea"]


def test_the_orders_of_sqlite(tmp_path: Path) -> None:
    with KohortServer() as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("orders", 1)
        page = defined(1, servers=server.bootstrap_servers, sqlite=str(tmp_path / "shop"))
        for _ in range(2):
            page["main"]()
        assert committed(cluster, "orders") == ["tea", "tea"]


def test_the_columns_of_the_page() -> None:
    with sqlite3.connect(":memory:") as connection:
        with BlockingOutbox("x", "127.0.0.1:1") as outbox:
            outbox.create_table(connection)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(kohort_outbox)")]
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "outbox.md").read_text(encoding="utf-8")
    assert all(f"`{column}`" in page for column in columns)


def test_the_shop_is_killed(tmp_path: Path) -> None:
    shop = tmp_path / "shop.sqlite"
    with KohortServer() as server, Cluster(server.bootstrap_servers) as cluster:
        servers = server.bootstrap_servers
        command = [sys.executable, str(EXAMPLE), "--servers", servers, "--database", str(shop), "--every", "0"]
        for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            before = len(orders(shop))
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                wait_until(more_than(shop, before + 5), "five more orders")
            finally:
                process.send_signal(how)
                process.wait()
        with BlockingOutbox("shop", servers) as outbox:
            connection = sqlite3.connect(shop)
            outbox.recover(connection)
            connection.close()
        assert committed(cluster, "orders") == [str(number) for number in orders(shop)]


def more_than(shop: Path, count: int) -> Callable[[], bool]:
    return lambda: len(orders(shop)) > count


def orders(shop: Path) -> list[int]:
    if not shop.exists():
        return []
    connection = sqlite3.connect(shop, timeout=10)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchall():
            return []
        return [number for (number,) in connection.execute("SELECT number FROM orders ORDER BY number")]
    finally:
        connection.close()
