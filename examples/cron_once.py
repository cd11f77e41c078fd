"""A cron job for a fleet: one process runs it once per time slot, whichever process dies.

    kohort serve                                      # or any Kafka cluster
    python cron_once.py --every 60                    # on every machine; stop and kill them as you like

A process that is stopped by Ctrl-C or SIGTERM leaves the group, and another one leads at once.

One process leads and runs the job. The effect and the record that the job was done are one transaction. The transaction
first compares the leader's token with the largest one in the database: so a leader that was suspended, and does not
know that another one leads, is refused. SQLite stands for the database that your fleet shares.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import time

from kohort.client import KafkaError, Term, lead, run_program

TABLES = """
CREATE TABLE IF NOT EXISTS fence (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL);
INSERT OR IGNORE INTO fence VALUES (1, 0);
CREATE TABLE IF NOT EXISTS runs (slot INTEGER PRIMARY KEY, token INTEGER NOT NULL, process INTEGER NOT NULL);
"""


class Refused(Exception):
    """Somebody leads with a larger token."""


def run_job(database: sqlite3.Connection, slot: int, token: int) -> bool:
    """The job of one slot; False where it was done already. Raises Refused."""
    with database:  # a transaction
        database.execute("BEGIN IMMEDIATE")
        fenced = database.execute("UPDATE fence SET token = ? WHERE token <= ?", (token, token))
        if fenced.rowcount == 0:
            raise Refused
        done = database.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?)", (slot, token, os.getpid()))
        return done.rowcount == 1  # and here the job itself, in the same transaction


async def run_slots(term: Term, database: sqlite3.Connection, every: float) -> None:
    while True:
        slot = int(time.time() / every)
        if term.valid and run_job(database, slot, term.token):
            print(f"slot {slot}: done by process {os.getpid()}, token {term.token}", flush=True)
        await asyncio.sleep((slot + 1) * every - time.time())


async def main() -> None:
    parser = argparse.ArgumentParser(description="A cron job that runs once in a fleet.")
    parser.add_argument("--servers", default="127.0.0.1:9092", help="HOST:PORT,...")
    parser.add_argument("--group", default="nightly-report")
    parser.add_argument("--every", type=float, default=60.0, help="seconds")
    parser.add_argument("--database", default="cron.sqlite")
    parser.add_argument("--session", type=int, default=10_000, help="milliseconds until a dead leader is followed")
    given = parser.parse_args()
    database = sqlite3.connect(given.database, isolation_level=None, timeout=10)
    database.executescript(TABLES)
    async with lead(
        given.servers,
        given.group,
        token_topic="fencing-tokens",  # not used by kohort, whose generations are never used twice
        session_timeout_ms=given.session,
    ) as election:
        async for term in election:
            await term.run(run_slots(term, database, given.every))


if __name__ == "__main__":
    try:
        run_program(main())
    except KafkaError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        pass
