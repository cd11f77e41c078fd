"""`python tests/crash [--transactions] [--cycles 200] [--seed N]`: kill -9 under load, as `crash_run.py` says, or with
--transactions as `crash_transactions.py` says, with --queues as `crash_queues.py`. About 3 s a cycle. `--backups N`:
backups under load, as `crash_backups.py` says. `--nodes N`: on a PostgreSQL instead of a data directory; with 2, each
kill is a takeover."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "storage"))

from crash_backups import BackupRun
from crash_cycles import Violation
from crash_gateway import CrashGateway
from crash_nodes import CrashNodes
from crash_queues import QueueRun
from crash_run import Run
from crash_server import CrashServer
from crash_transactions import TransactionRun
from postgres_server import PostgresServer, postgres


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/crash", description=__doc__)
    parser.add_argument("--cycles", type=int, default=200, help="how often the server is killed and checked")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the kill moments")
    parser.add_argument("--transactions", action="store_true", help="copies in transactions instead of commits")
    parser.add_argument("--queues", action="store_true", help="a share group instead of commits")
    parser.add_argument("--backups", type=int, default=0, help="backups under load, restored and checked; no kills")
    parser.add_argument(
        "--rate", type=float, help="commits a second that the workers attempt in all (8,000; 20,000), or records"
    )
    parser.add_argument(
        "--nodes", type=int, default=0, help="so many nodes on a PostgreSQL of its own, instead of a data directory"
    )
    parser.add_argument("--gateway", action="store_true", help="a gateway before a server: a kill hits one, or both")
    parser.add_argument("--blips", action="store_true", help="the database's answers are lost all the time")
    options = parser.parse_args()
    nodes: list[CrashNodes] = []
    directory = Path(tempfile.mkdtemp(prefix="kohort-crash-"))
    given: dict[str, Any] = {} if options.rate is None else {"rate": options.rate}
    given["say"] = lambda line: print(line, flush=True)
    with ExitStack() as stack:
        if options.nodes:
            server = stack.enter_context(postgres())
            given["server"] = on_postgres(server, options.nodes, nodes, blips=options.blips)
        if options.gateway:
            given["server"] = CrashGateway
        code = run_in(directory, options, given)
    for each in nodes:
        print(f"faults: {dict(each.faults)}")
    return code


def on_postgres(
    server: PostgresServer, count: int, nodes: list[CrashNodes], *, blips: bool
) -> Callable[[Path, dict[str, str]], CrashServer]:
    def made(directory: Path, settings: dict[str, str]) -> CrashServer:
        nodes.append(CrashNodes(server, count, directory / "server.log", settings, blips=blips))
        return nodes[-1]

    return made


def run_in(directory: Path, options: argparse.Namespace, given: dict[str, Any]) -> int:
    of_workload = TransactionRun if options.transactions else QueueRun if options.queues else Run
    run: BackupRun | QueueRun | Run | TransactionRun
    if options.backups:
        run = BackupRun(directory, options.backups, **given)
    else:
        run = of_workload(directory, options.cycles, options.seed, **given)
    print(f"seed {options.seed}, in {directory}", flush=True)
    try:
        run.run()
    except Violation as violation:
        print(f"VIOLATION: {violation}", file=sys.stderr)
        return 1
    print(run.told())
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
