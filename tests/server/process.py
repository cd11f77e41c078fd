"""`kohort serve` as a process."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ANYWHERE = ("--listeners", "127.0.0.1:0")
COMMAND = [sys.executable, "-c", "from kohort.cli.main import main; main()", "serve"]


def run_to_its_end(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a server that must refuse to start."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=20, **options)


class Serve:
    """Runs when the block begins; killed at its end if it still runs."""

    def __init__(
        self, *arguments: str, command: list[str] = COMMAND, until: str = "kohort is ready", **options: Any
    ) -> None:
        """`until`: the block begins with a line that has this text."""
        self._until = until
        self.process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.ready = ""

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if self._until in line:
                self.ready = line
                break
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()
        assert self.ready, (self.lines, self.process.wait(10), self.errors)
        return self

    def _read(self, stream: Any, lines: list[str]) -> None:
        lines.extend(stream)

    @property
    def addresses(self) -> list[str]:
        [found] = re.findall(r"listeners=(\S+)", self.ready)
        return found.split(",")

    def ended(self) -> int:
        """Its exit code; waits for it, and for its last lines."""
        code = self.process.wait(15)
        for reader in self._readers:
            reader.join(5)
        return code

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.ended()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def data_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
