"""Processes killed by SIGKILL before each step of the outbox.

Each process recovers what the one before has left. After the last one, each row of the database has its record exactly
once among the committed records, and no other record is there. tests/client_library/outbox/test_recipe.py has the same
with deaths between the requests of a step, and in every order of two processes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from committed_records import committed
from outbox_stores import Store

from kohort.client.cluster import Cluster

PROGRAM = Path(__file__).parents[1] / "outbox_process.py"
TRANSACTIONS, RECORDS = 2, 2

pytestmark = pytest.mark.timeout(300)


def test_killed_before_each_step(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    asyncio.run(create(store, servers, name))
    command = [sys.executable, str(PROGRAM), store.driver, store.address, store.table, name, servers, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 16, "a process has more steps"
    asyncio.run(recover(store, servers, name))
    assert [transactional_id for _, _, transactional_id in store.rows()] == [None]
    values = store.values()
    assert sorted(committed(cluster, topic)) == sorted(values)
    assert len(set(values)) == len(values) >= RECORDS * TRANSACTIONS


async def create(store: Store, servers: str, name: str) -> None:
    outbox = store.outbox(name, servers)
    await outbox.create_table(await store.connect())
    outbox.close()


async def recover(store: Store, servers: str, name: str) -> None:
    outbox = store.outbox(name, servers)
    await outbox.recover(await store.connect())
    outbox.close()
