"""A rolling deployment without a rebalance: static members keep their place while they restart.

    kohort serve                                      # or any Kafka cluster
    python rolling_deployment.py                      # starts three workers and restarts one after the other
    python rolling_deployment.py --dynamic            # the same, each restart as a new member

A worker's `group_instance_id` stays the same over restarts. A closed worker does not leave the group; when
it comes back within its session, it gets its old work, and the other workers are not involved. Without the id, every
stop and every start is a rebalance of all workers.

When this program ends, its static members stay in the group until their sessions end, 30 seconds later. A program that
leaves for good calls `worker.close(leave=True)`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from kohort.client import Coordinator, JoinedMember, KafkaError, run_program

PARTS = [f"part-{n}" for n in range(12)]


class Worker(Coordinator):
    protocol_type = "workers"

    def metadata(self) -> Mapping[str, bytes]:
        return {"by-turns": b""}

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        names = sorted(member.member_id for member in members)
        return {name: json.dumps(PARTS[n :: len(names)]).encode() for n, name in enumerate(names)}

    def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        print(json.dumps({"generation": generation, "parts": json.loads(assignment)}), flush=True)


async def work(given: argparse.Namespace) -> None:
    instance = None if given.dynamic else f"worker-{given.worker}"
    async with Worker(
        given.servers, given.group, group_instance_id=instance, session_timeout_ms=30_000, heartbeat_interval_ms=1_000
    ) as worker:
        while True:
            await worker.ensure_active_group()
            await worker.wait_for_rejoin()


class Process:
    """A worker's process, and its last assignment."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._start()

    def _start(self) -> None:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", str(self.number)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def restart(self) -> None:
        self.stop()
        self._start()

    def settled(self, workers: int) -> tuple[int, list[str]]:
        """Its generation and its parts, once all workers are there."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            now = json.loads(line)
            if len(now["parts"]) <= len(PARTS) // workers:
                return now["generation"], now["parts"]
        raise SystemExit(f"worker {self.number} has ended")


def deploy(given: argparse.Namespace) -> None:
    workers = [Process(number) for number in range(given.workers)]
    try:
        before = max(worker.settled(given.workers)[0] for worker in workers)
        print(f"{given.workers} workers, generation {before}")
        after = before
        for worker in workers:
            worker.restart()
            after, parts = worker.settled(given.workers)
            print(f"worker {worker.number} is back, generation {after}: {', '.join(parts)}")
        print(f"rebalances of the deployment: {after - before}")
    finally:
        for worker in workers:
            worker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="A rolling deployment of workers of one group.")
    parser.add_argument("--servers", default="127.0.0.1:9092", help="HOST:PORT,...")
    parser.add_argument("--group", default="deployed")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--dynamic", action="store_true", help="members without an instance id")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is None:
        deploy(given)
    else:
        try:
            run_program(work(given))  # until SIGTERM
        except KafkaError as error:
            raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
