"""`python tests/behaviour/record_tables.py [SERVER…]`: the recorded tables of `kohort conformance`, one a server.

    kohort, strict            kohort, without held heartbeats and longer rebalances in storms; with compatibility=kafka
    kafka-3.9.1 … kafka-4.3.1 Apache Kafka of that version, from Maven
    kfake, mock               franz-go's kfake, librdkafka's mock cluster

A server is started once for each set of settings that files count on, with time three times as fast, and the tables of
its runs are joined. Tables go to docs/conformance-tables as JSON, and the page docs/conformance-tables.md has all of
them. A server that cannot be started here keeps its table. Fails if a row of kohort is different without an id of
docs/differences.md that says why. With the word `page` for a server, the page alone is written again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(path) for path in (TESTS.parent, TESTS / "behaviour", TESTS / "coordinator", TESTS / "java", TESTS / "peers")
]

import java_libraries  # noqa: E402
import tables_page  # noqa: E402
from bench import _kafka as apache  # noqa: E402
from bench import _peers  # noqa: E402
from bench._peers import pairs  # noqa: E402
from bench._process import serving  # noqa: E402
from peer_servers import OF_KAFKA  # noqa: E402

import kohort  # noqa: E402
from kohort.client.errors import KafkaError  # noqa: E402
from kohort.client.security.security import Security  # noqa: E402
from kohort.conformance import reference, table  # noqa: E402
from kohort.conformance.files import SEQUENCES  # noqa: E402
from kohort.conformance.play.broker import NotServed  # noqa: E402
from kohort.conformance.play.profiles import FACTOR, PAIRS, PROMPT, USUAL  # noqa: E402
from kohort.conformance.run import NOT_SHOWN, File, Kit, Play  # noqa: E402
from kohort.conformance.target import Gone, Target  # noqa: E402

TABLES = TESTS.parent / "docs" / "conformance-tables"
PAGE = TABLES.with_suffix(".md")
KAFKA = ("3.9.1", "4.0.1", "4.1.1", "4.2.0", "4.3.1")
SERVERS = ("kohort", "strict", *(f"kafka-{version}" for version in KAFKA), "kfake", "mock")
TITLES = {"kohort": "kohort", "strict": "kohort, strict", "kfake": "kfake", "mock": "librdkafka's mock"}
WITHOUT_SETTINGS = ("kfake", "mock")
"""Their time cannot be made faster, so they are asked in the quick form."""
ONE_NODE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
POM = Path(__file__).parent / "kafka" / "pom.xml"


def passes(name: str) -> list[Mapping[str, str]]:
    """The sets of settings."""
    if name in WITHOUT_SETTINGS:
        return [{}]
    return [profile.slower(FACTOR).settings for profile in (USUAL, PROMPT, PAIRS)]


def main(names: Sequence[str]) -> int:
    TABLES.mkdir(exist_ok=True)
    for name in names or SERVERS:
        if name == "page":
            continue
        try:
            found = _table(name)
        except (OSError, RuntimeError, KafkaError, AssertionError, NotServed) as error:
            print(f"{name}: no table, {error!r}", flush=True)
            continue
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (TABLES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {found['counts']}", flush=True)
    tables = tables_page.read(TABLES, SERVERS)
    PAGE.write_text(tables_page.page(tables), encoding="utf-8")
    unexplained = tables_page.unexplained(tables)
    for line in unexplained:
        print(f"docs/differences.md does not say why: {line}", file=sys.stderr)
    return 1 if unexplained else 0


class Fatal(Kit):
    """A play of files after which the server may be gone: the answer that did not come is the difference."""

    def _look_after(self, file: File) -> None:
        pass


def _table(name: str) -> dict[str, Any]:
    plays: dict[str, Play] = {}
    title = ""
    for settings in passes(name):
        done = {file for file, play in plays.items() if play.state != NOT_SHOWN}
        title, found = _survived(name, settings, done)
        for play in found:
            before = plays.get(play.file)
            if before is None or play.state != NOT_SHOWN or _is_weak(before) > _is_weak(play):
                plays[play.file] = play
        print(f"  {name}: {sum(play.state != NOT_SHOWN for play in plays.values())} files", flush=True)
    ordered = sorted(plays.values())
    about = {"kohort": kohort.__version__, "target": title, "brokers": 1, "form": "recorded"}
    return table.document(table.results(ordered, bool), [play._replace(seconds=0.0) for play in ordered], about)


def _survived(name: str, settings: Mapping[str, str], done: Set[str]) -> tuple[str, list[Play]]:
    """The server's title, and the plays of all files but those that are done. A file may end the server. Then the files
    that were played meanwhile come after the others: sequences one by one, and scenarios together."""
    suspects: frozenset[str] = frozenset()
    while True:
        try:
            title, found = _plays(name, settings, (done | suspects).isdisjoint)
            break
        except Gone as gone:
            print(f"  {name}: {gone}", flush=True)
            suspects |= gone.files
    sequences = suspects.intersection(reference.names(SEQUENCES))
    groups = [{file} for file in sorted(sequences)] + [set(suspects - sequences)]
    for group in filter(None, groups):
        try:
            found += _plays(name, settings, group.issuperset, Kit if len(group) > 1 else Fatal)[1]
        except Gone:
            groups += [{file} for file in sorted(group)]
    return title, found


def _is_weak(play: Play) -> bool:
    """True if the reason is a setting, which may be one of another set."""
    return play.why.startswith("it needs")


def _plays(
    name: str, settings: Mapping[str, str], wanted: Callable[[Set[str]], bool], kind: type[Kit] = Kit
) -> tuple[str, list[Play]]:
    with _started(name, settings) as (title, address):
        target = Target(address, Security())
        try:
            kit = kind(target, quick=name in WITHOUT_SETTINGS)
            kit.files = [file for file in kit.files if wanted({file.name})]
            if not kit.files:
                return title, kit.not_played
            target.prepare()
            return title, kit.run()
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
        with serving(*pairs({**settings, **tables_page.LANES[name].settings})) as (_, address):
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
