"""kcat against a server: list, produce, consume, a group. Runs under `make test-kcat`, where the binary is there."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = [pytest.mark.kcat, pytest.mark.timeout(60)]


def kcat(*arguments: str, feed: str = "") -> str:
    done = subprocess.run(["kcat", *arguments], input=feed, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_produce_and_consume(bootstrap: str, unique: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", unique, "-K", ":", feed="k1:one\nk2:two\nk3:three\n")
    out = kcat("-b", bootstrap, "-C", "-t", unique, "-e", "-q", "-f", "%k=%s@%o\n")
    assert out.split() == ["k1=one@0", "k2=two@1", "k3=three@2"]


def test_metadata(bootstrap: str, unique: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", unique, feed="x\n")
    listed = json.loads(kcat("-b", bootstrap, "-L", "-J"))
    assert unique in [topic["topic"] for topic in listed["topics"]]
    assert len(listed["brokers"]) == 1


def test_offsets_by_time(bootstrap: str, unique: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", unique, feed="x\ny\n")
    assert "offset 2" in kcat("-b", bootstrap, "-Q", "-t", f"{unique}:0:-1")
    assert "offset 0" in kcat("-b", bootstrap, "-Q", "-t", f"{unique}:0:-2")


def test_a_group_starts_where_it_stopped(bootstrap: str, unique: str) -> None:
    kcat("-b", bootstrap, "-P", "-t", unique, feed="one\ntwo\n")
    group = ("-b", bootstrap, "-G", unique, "-q", "-X", "auto.offset.reset=earliest", "-f", "%s\n")
    assert kcat(*group, "-c", "2", unique).split() == ["one", "two"]
    kcat("-b", bootstrap, "-P", "-t", unique, feed="three\n")
    assert kcat(*group, "-c", "1", unique).split() == ["three"]
