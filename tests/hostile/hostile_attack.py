"""A process of hostile clients: `python hostile_attack.py HOST:PORT`, started by `hostile_run.py`.

Reads a JSON line for each attack, {"clients": [...], "seconds": ..., "prepare": [...]}. Prepares the server for the
clients and for those of "prepare", which may attack later, says "prepared", waits for
the line "go", plays the clients at the same time, and says what they did. It goes on until its stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict

from hostile_catalogue import BY_NAME
from hostile_client import Client, Done, play
from hostile_preparation import Preparation


def main() -> None:
    os.nice(5)  # it shares the cores with the members that are measured
    host, _, port = sys.argv[1].rpartition(":")
    address = (host, int(port))
    preparation = Preparation(address)
    for line in sys.stdin:
        order = json.loads(line)
        clients = [BY_NAME[name] for name in order["clients"]]
        for client in [*clients, *(BY_NAME[name] for name in order["prepare"])]:
            client.prepare(preparation)
        print("prepared", flush=True)
        if sys.stdin.readline() != "go\n":
            return
        done = Done()
        asyncio.run(attack(clients, address, order["seconds"], done))
        print(json.dumps(asdict(done)), flush=True)


async def attack(clients: list[Client], address: tuple[str, int], seconds: float, done: Done) -> None:
    until = time.monotonic() + seconds
    await asyncio.gather(*(play(client, address, until, done) for client in clients))


if __name__ == "__main__":
    main()
