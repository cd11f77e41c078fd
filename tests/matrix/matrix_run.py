"""Runs the cells of the matrix, a thread a client and a few at once, while pytest runs the tests of whole programs;
then it waits for the cells one by one. `--rewrite` writes docs/clients.md and the golden requests at the end.

A plugin of pytest, because tests of programs are in other folders than this one. They have the marker
`program(title, what it does)`; where the tools of a cell or program are missing, it is left out, and the end of the run
and the page say so.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import matrix_golden
import matrix_page
import pytest
from matrix_clients import CLIENTS, COLUMNS, NOT_THROUGH_A_GATEWAY, Client
from matrix_page import Outcome
from matrix_programs import Programs
from matrix_secured import SecuredServer
from matrix_stage import RECORDED, VERSIONS, Stage
from relay import PRODUCE, Kept

AT_ONCE = 3
JAVA_TOOLS = ("mvn", "java")
Cell = tuple[str, str]
"""A client and a feature, or a program's title and what it does."""


class Matrix:
    """The cells that were asked for, running."""

    def __init__(self, cells: list[Cell], folder: Path) -> None:
        self._folder = folder
        self._programs = Programs(folder)
        self._secured = SecuredServer(tuple(client.key for client in CLIENTS))
        self.results: dict[Cell, Future[None]] = {cell: Future() for cell in cells}
        self.versions: dict[str, str] = {}
        self.frames: dict[str, dict[Kept, bytes]] = {}
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(AT_ONCE)
        for client in CLIENTS:
            if wanted := [feature for key, feature in cells if key == client.key]:
                self._pool.submit(self._run, client, wanted)

    def _run(self, client: Client, wanted: list[str]) -> None:
        stage = None
        try:
            command = self._programs.of(client.key)
            known = {"looks_for_topics": client.looks_for_topics, "codecs": client.codecs}
            stage = Stage(client.key, command, self._folder, self._secured, **known)
            self.frames[client.key] = stage.relay.frames
            for feature in wanted:
                if not self._stop.is_set():
                    self._cell(stage, client, feature)
        except BaseException as error:
            for feature in wanted:
                if not self.results[client.key, feature].done():
                    self.results[client.key, feature].set_exception(error)
        finally:
            if stage is not None:
                stage.close()

    def _cell(self, stage: Stage, client: Client, feature: str) -> None:
        try:
            COLUMNS[feature](stage)
        except BaseException as error:
            self.results[client.key, feature].set_exception(error)
        else:
            self.results[client.key, feature].set_result(None)
        if stage.version:
            self.versions[client.key] = stage.version

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown()
        self._secured.close()


MATRIX = pytest.StashKey[Matrix]()
OUTCOMES = pytest.StashKey[dict[Cell, list[Outcome]]]()
LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()
WHOLE = pytest.StashKey[bool]()
ALL_CELLS = [(client, feature) for client in CLIENTS for feature in client.runs]


def cell_of(item: pytest.Item) -> Cell | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.get_closest_marker("matrix") is None:
        return None
    found: Cell | None = callspec.params.get("cell")
    return found


def program_of(item: pytest.Item) -> Cell | None:
    marker = item.get_closest_marker("program")
    return None if marker is None else marker.args


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of programs first, while the cells run; without those that lack their tools."""
    if not any(cell_of(item) or program_of(item) for item in items):
        return
    lacking = [tool for tool in JAVA_TOOLS if shutil.which(tool) is None]
    left_out: dict[str, list[str]] = {}
    for client in CLIENTS:
        for tool in client.missing():
            left_out.setdefault(tool, []).append(client.title)
    gone = [item for item in items if lacking and program_of(item) and item.get_closest_marker("java")]
    for tool in lacking:
        left_out.setdefault(tool, []).extend(
            dict.fromkeys(program[0] for item in gone if (program := program_of(item)))
        )
    if gone:
        config.hook.pytest_deselected(items=gone)
    items[:] = sorted((item for item in items if item not in gone), key=lambda item: cell_of(item) is not None)
    config.stash[LEFT_OUT] = left_out
    config.stash[OUTCOMES] = {program: [] for item in gone if (program := program_of(item))}


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    cells = []
    for item in session.items:
        if found := cell_of(item) or program_of(item):
            item.user_properties.append(("matrix", found))
        if found := cell_of(item):
            cells.append(found)
    programs = any(program_of(item) for item in session.items) or bool(config.stash.get(OUTCOMES, {}))
    runs_all = len(cells) == sum(not client.missing() for client, _ in ALL_CELLS)
    config.stash[WHOLE] = programs and runs_all and not NOT_THROUGH_A_GATEWAY
    if cells and not config.option.collectonly:
        folder = session.config._tmp_path_factory.mktemp("matrix")  # type: ignore[attr-defined]
        config.stash[MATRIX] = Matrix(cells, folder)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Notes the outcome of a cell or program, with the first line of its message."""
    properties = dict(item.user_properties)
    failure = call.excinfo
    if "matrix" not in properties or (call.when != "call" and failure is None):
        return
    reason = "" if failure is None else " ".join(str(failure.value).split())[:300] or failure.typename
    outcomes = item.config.stash[OUTCOMES].setdefault(properties["matrix"], [])
    outcomes.append(Outcome(failure is None, reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for tool, what in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(f"not run, {tool} is missing: {', '.join(what)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    running = config.stash.get(MATRIX, None)
    if running is None:
        return
    running.close()
    if not config.getoption("rewrite") or not config.stash[WHOLE]:
        return
    outcomes = config.stash[OUTCOMES]
    of_clients = {client.key for client in CLIENTS}
    cells = {cell: found[0] for cell, found in outcomes.items() if cell[0] in of_clients and found}
    java = running.versions.get("java", "")
    programs = {
        program: (VERSIONS.get(program[0], java), found)
        for program, found in outcomes.items()
        if program[0] not in of_clients
    }
    matrix_page.write(cells, running.versions, programs, config.stash[LEFT_OUT])
    kept = {client: (version, running.frames[client]) for client, version in running.versions.items()}
    for program, relay in RECORDED.items():
        frames = {place: frame for place, frame in relay.frames.items() if place[0] != PRODUCE}
        kept[program] = (VERSIONS.get(program, java), frames)
    matrix_golden.merge(kept)
