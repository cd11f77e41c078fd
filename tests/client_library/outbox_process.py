"""Processes that write through an outbox: the n-th is killed by SIGKILL before the n-th step of all that it does.

    python outbox_process.py DRIVER ADDRESS TABLE NAME SERVERS TOPIC

Each process recovers the outbox and has two transactions of two records each. The last one has fewer steps.
Prints how many were killed. The processes are forked from this one, which has no threads and no connections.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from outbox_stores import Store, hook_steps, write

TRANSACTIONS = 2


async def write_and_die(driver: str, address: str, table: str, name: str, servers: str, topic: str, step: int) -> None:
    store = Store(driver, address, table)
    left = step

    def count(_: str) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    connection = await store.connect()
    outbox = store.outbox(name, servers)
    hook_steps(outbox, before=count)
    await outbox.recover(connection)
    for number in range(TRANSACTIONS):
        await write(outbox, store, connection, topic, f"{table}-{step}-{number}-a", f"{table}-{step}-{number}-b")


def killed(step: int) -> bool:
    """Run a process. Raises RuntimeError if it fails."""
    process_id = os.fork()
    if process_id == 0:
        status = 1
        try:
            asyncio.run(write_and_die(*sys.argv[1:], step=step))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the process that dies at step {step} has ended with {status}")
    return status != 0


if __name__ == "__main__":
    print(sum(1 for _ in itertools.takewhile(killed, itertools.count())))
