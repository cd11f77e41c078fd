"""Crawlers that share their sites: each site has one crawler at a time, and crawlers come and go.

    kohort serve                                      # or any Kafka cluster
    python sharded_crawlers.py                        # as often as you like; stop and kill them as you like

The sites are in a database, so that they can change while the crawlers run; a large site weighs more than a small one.
A crawler writes its results with its token for the site: the database refuses a crawler that was suspended and does not
know that the site has another crawler. A crawler that is stopped by Ctrl-C or SIGTERM leaves the group, and its sites
move at once. SQLite stands for the database that your fleet shares.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3

from kohort.client import KafkaError, Shard, run_program, shards

TABLES = """
CREATE TABLE IF NOT EXISTS sites (name TEXT PRIMARY KEY, pages INTEGER NOT NULL, token INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS visits (id INTEGER PRIMARY KEY, site TEXT, token INTEGER, process INTEGER);
INSERT OR IGNORE INTO sites (name, pages) VALUES ('a.example', 10), ('b.example', 10), ('c.example', 20),
    ('d.example', 40), ('e.example', 10), ('f.example', 10), ('g.example', 20), ('h.example', 40);
"""


class Crawler:
    def __init__(self, path: str, every: float) -> None:
        self.every = every
        self.database = sqlite3.connect(path, isolation_level=None, timeout=10)
        self.database.executescript(TABLES)

    def sites(self) -> dict[str, float]:
        """The sites to crawl, with their weights; the group's leader calls this."""
        return {name: float(pages) for name, pages in self.database.execute("SELECT name, pages FROM sites")}

    def write(self, shard: Shard) -> bool:
        """What a visit has found. False where the site has a newer crawler."""
        with self.database:
            self.database.execute("BEGIN IMMEDIATE")
            fenced = self.database.execute(
                "UPDATE sites SET token = ? WHERE name = ? AND token <= ?", (shard.token, shard.item, shard.token)
            )
            if fenced.rowcount == 1:
                self.database.execute(
                    "INSERT INTO visits (site, token, process) VALUES (?, ?, ?)", (shard.item, shard.token, os.getpid())
                )
            return fenced.rowcount == 1

    async def crawl(self, shard: Shard) -> None:
        print(f"{shard.item}: mine, token {shard.token}", flush=True)
        try:
            while shard.valid and self.write(shard):
                await asyncio.sleep(self.every)  # visit the site
        finally:
            print(f"{shard.item}: given up", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Crawlers that share out their sites.")
    parser.add_argument("--servers", default="127.0.0.1:9092", help="HOST:PORT,...")
    parser.add_argument("--group", default="crawlers")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between visits")
    parser.add_argument("--database", default="crawlers.sqlite")
    parser.add_argument("--session", type=int, default=10_000, help="milliseconds until a dead crawler's sites move")
    given = parser.parse_args()
    crawler = Crawler(given.database, given.every)
    async with shards(
        given.servers,
        given.group,
        crawler.sites,
        refresh_ms=int(given.every * 1000),
        session_timeout_ms=given.session,
    ) as sharding:
        await sharding.run(crawler.crawl)


if __name__ == "__main__":
    try:
        run_program(main())
    except KafkaError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        pass
