"""docs/metrics.md has a row for each series; `pytest --rewrite tests/structure/test_metrics_page.py` writes them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kohort.broker.metrics import families
from kohort.broker.metrics.families import FAMILIES, Family

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
SOURCE = ROOT / "src" / "kohort"
PARTS = {
    "kafka_exporter": ("kafka_brokers", "kafka_broker_info", "kafka_consumergroup_", "kafka_topic_"),
    "kafka-lag-exporter": ("kafka_consumergroup_group_",),
    "jmx_exporter": ("kafka_server_", "kafka_network_", "kafka_controller_", "kafka_coordinator_"),
    "kohort": ("kohort_",),
    "kminion": ("kminion_",),
    "process": ("process_",),
}
"""A table of the page, and how its names begin; the longest beginning counts."""
HEAD = "| series | kind | labels | unit | |\n| --- | --- | --- | --- | --- |\n"
UNITS = {"seconds": "s", "bytes": "bytes"}


def part_of(family: Family) -> str:
    [*_, (_, part)] = sorted(
        (len(start), part) for part, starts in PARTS.items() for start in starts if family.name.startswith(start)
    )
    return part


def row(family: Family) -> str:
    unit = next((unit for word, unit in UNITS.items() if word in family.name.split("_")), "")
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {unit} | {family.help} |\n"


def rewritten(text: str) -> str:
    for part in PARTS:
        table = HEAD + "".join(row(family) for family in FAMILIES if part_of(family) == part)
        before, after = f"<!-- series: {part} -->\n", "<!-- end -->"
        pattern = rf"{re.escape(before)}[^<]*{after}"
        text, count = re.subn(pattern, lambda _, whole=f"{before}\n{table}\n{after}": whole, text)
        assert count == 1, f"the page has {count} tables of {part}"
    return text


def test_the_page_has_all_series_and_no_others(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    page = rewritten(text)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page, encoding="utf-8")
    else:
        assert page == text, "pytest --rewrite tests/structure/test_metrics_page.py"
    named = set(re.findall(r"`((?:kafka|kohort|kminion|process)_[a-z_]+[a-z])`", page))
    assert named >= {family.name for family in FAMILIES}
    assert named <= {family.name for family in FAMILIES} | {"kafka_exporter"}


def test_every_family_is_used() -> None:
    """Somebody adds samples to each family of the table."""
    names = {name: value.name for name, value in vars(families).items() if isinstance(value, Family)}
    assert sorted(names.values()) == sorted(family.name for family in FAMILIES)
    collectors = [*(SOURCE / "broker" / "metrics").glob("*.py"), *(SOURCE / "server" / "http").glob("*.py")]
    used = {
        node.attr
        for path in collectors
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "f"
    }
    assert names.keys() <= used, names.keys() - used


def test_names_follow_the_rules() -> None:
    """Of Prometheus, and of OpenMetrics for counters."""
    for family in FAMILIES:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert all(re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", label) for label in family.labels)
        assert (family.kind == families.COUNTER) == family.name.endswith("_total")
        assert "\n" not in family.help
        assert not family.help.endswith(".")
        assert "|" not in family.help


def test_compiled_modules_only_count() -> None:
    """The hot modules import nothing of the metrics; they have integers."""
    from kohort.compiled import HOT

    for module in HOT:
        path = (ROOT / "src" / module.replace(".", "/")).with_suffix(".py")
        assert "kohort.broker.metrics" not in path.read_text(encoding="utf-8"), module
