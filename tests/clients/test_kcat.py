"""kcat against a server: list, produce, consume, a group. Runs under `make test-kcat`, where the binary is there."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = [pytest.mark.kcat, pytest.mark.timeout(60)]


def test_kcat_lists_produces_consumes_and_resumes(bootstrap: str, unique: str) -> None:
    def kcat(*arguments: str, feed: str = "") -> str:
        command = ["kcat", "-b", bootstrap, *arguments]
        done = subprocess.run(command, input=feed, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", unique, "-K", ":", feed="k1:one\nk2:two\n")
    out = kcat("-C", "-t", unique, "-e", "-q", "-f", "%k=%s@%o\n")
    assert out.split() == ["k1=one@0", "k2=two@1"]
    listed = json.loads(kcat("-L", "-J"))
    assert unique in [topic["topic"] for topic in listed["topics"]]
    assert len(listed["brokers"]) == 1
    assert "offset 2" in kcat("-Q", "-t", f"{unique}:0:-1"), "the end"
    assert "offset 0" in kcat("-Q", "-t", f"{unique}:0:-2"), "the start"
    group = ("-G", unique, "-q", "-X", "auto.offset.reset=earliest", "-f", "%s\n")
    assert kcat(*group, "-c", "2", unique).split() == ["one", "two"]
    kcat("-P", "-t", unique, feed="three\n")
    assert kcat(*group, "-c", "1", unique).split() == ["three"], "from the committed offset"
