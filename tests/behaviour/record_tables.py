"""`python tests/behaviour/record_tables.py [SERVER…]`: the recorded tables of `kohort conformance`, one a server.

    kohort, strict            kohort as it is, and with compatibility=kafka
    kafka-3.9.1 … kafka-4.3.1 Apache Kafka of that version, from Maven
    kfake, mock               franz-go's kfake, librdkafka's mock cluster

A server is started once for each set of settings that files count on, with time three times as fast, and the tables of
its runs are joined. Tables go to docs/conformance-tables as JSON, and the page docs/conformance-tables.md has all of
them. A server that cannot be started here keeps its table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(path) for path in (TESTS.parent, TESTS / "behaviour", TESTS / "coordinator", TESTS / "java", TESTS / "peers")
]

import java_libraries  # noqa: E402
from bench import _kafka as apache  # noqa: E402
from bench import _peers  # noqa: E402
from bench._process import serving  # noqa: E402
from peer_servers import OF_KAFKA  # noqa: E402

import kohort  # noqa: E402
from kohort.client.errors import KafkaError  # noqa: E402
from kohort.client.security.security import Security  # noqa: E402
from kohort.conformance import report, table  # noqa: E402
from kohort.conformance.play.profiles import FACTOR, PAIRS, PROMPT, USUAL  # noqa: E402
from kohort.conformance.run import NOT_SHOWN, Kit, Play  # noqa: E402
from kohort.conformance.target import Target  # noqa: E402

TABLES = TESTS.parent / "docs" / "conformance-tables"
PAGE = TABLES.with_suffix(".md")
KAFKA = ("3.9.1", "4.0.1", "4.1.1", "4.2.0", "4.3.1")
SERVERS = ("kohort", "strict", *(f"kafka-{version}" for version in KAFKA), "kfake", "mock")
TITLES = {"kohort": "kohort", "strict": "kohort, strict", "kfake": "kfake", "mock": "librdkafka's mock"}
ONE_NODE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
HOLDS = {"group.heartbeat.hold.enable": "false"}
"""The times of answers are not compared, so a heartbeat that is held would only look like no answer."""
POM = Path(__file__).parent / "kafka" / "pom.xml"


def passes(name: str) -> list[Mapping[str, str]]:
    """The sets of settings."""
    if name in ("kfake", "mock"):
        return [{}]  # they have none
    return [profile.slower(FACTOR).settings for profile in (USUAL, PROMPT, PAIRS)]


def main(names: Sequence[str]) -> int:
    TABLES.mkdir(exist_ok=True)
    for name in names or SERVERS:
        try:
            found = _table(name)
        except (OSError, RuntimeError, KafkaError, AssertionError) as error:
            print(f"{name}: no table, {error!r}", flush=True)
            continue
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (TABLES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {found['counts']}", flush=True)
    write_page()
    return 0


def write_page() -> None:
    PAGE.write_text(report.matrix(tables()), encoding="utf-8")


def tables() -> dict[str, dict[str, Any]]:
    """Those that there are, by the server's name, in the order of SERVERS."""
    files = {name: TABLES / f"{name}.json" for name in SERVERS}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}


def _table(name: str) -> dict[str, Any]:
    plays: dict[str, Play] = {}
    for settings in passes(name):
        with _started(name, settings) as (title, address):
            for play in _plays(address, {file for file, play in plays.items() if play.state != NOT_SHOWN}):
                if play.state != NOT_SHOWN or play.file not in plays:
                    plays[play.file] = play
        print(f"  {name}: {sum(play.state != NOT_SHOWN for play in plays.values())} files", flush=True)
    ordered = sorted(plays.values())
    about = {"kohort": kohort.__version__, "target": title, "brokers": 1, "form": "recorded"}
    return table.document(table.results(ordered, bool), [play._replace(seconds=0.0) for play in ordered], about)


def _plays(address: str, done: set[str]) -> list[Play]:
    target = Target(address, Security())
    try:
        kit = Kit(target)
        kit.files = [file for file in kit.files if file.name not in done]
        if not kit.files:
            return kit.not_played
        target.prepare()
        return kit.run()
    finally:
        target.close()


@contextmanager
def _started(name: str, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The server's title and address."""
    if name.startswith("kafka-"):
        version = name.removeprefix("kafka-")
        jars = java_libraries.kept(name, [POM], lambda into: _fetch(version, into), version)
        wanted = {**OF_KAFKA, **ONE_NODE, **settings}
        with apache.kafka(f"{jars}/*", wanted, java_options=apache.BRIEF) as (_, address):
            yield f"Apache Kafka {version}", "{}:{}".format(*address)
    elif name in ("kohort", "strict"):
        own = {"compatibility": "kafka"} if name == "strict" else HOLDS
        with serving(*(f"{key}={value}" for key, value in {**settings, **own}.items())) as (_, address):
            yield f"{TITLES[name]} {kohort.__version__}", "{}:{}".format(*address)
    else:
        title = f"{TITLES[name]} {_peers.versions({name}).get(name, '')}".strip()
        with _peers.started(name, {}) as server:
            yield title, server.bootstrap


def _fetch(version: str, into: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-Dkafka={version}", "dependency:copy-dependencies"]
    subprocess.run([*command, f"-DoutputDirectory={into}"], check=True, timeout=500)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
