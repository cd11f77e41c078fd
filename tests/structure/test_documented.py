"""Files, settings and configs are documented."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kohort import config
from kohort.coordinator.settings.group_settings import GROUP_CONFIGS

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "kohort"
    for name in set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text)):
        places = (ROOT / name, source / name, *source.glob(f"*/{name}"))
        assert any(place.exists() for place in places), f"ARCHITECTURE.md names {name}, which does not exist"


PACKAGES = sorted(path.parent for path in (ROOT / "src" / "kohort").rglob("__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.relative_to(ROOT / "src").as_posix())
def test_a_package_lists_its_files_and_nothing_else(package: Path) -> None:
    """A line of its docstring is a name and, after two spaces or more, what it holds; a folder's name ends in "/"."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    lines = re.findall(r"^ *(\w+/?(?:, \w+/?)*) {2,}\S", text, re.MULTILINE)
    listed = {name for line in lines for name in line.split(", ")}
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert files - listed == set(), "files that the docstring lacks"
    assert listed - files - folders == set(), "names that do not exist"


def test_every_setting_says_what_it_does() -> None:
    for name, setting in config.SETTINGS.items():
        assert len(setting.metadata["doc"]) > 5, name


def test_every_config_of_groups_is_in_its_page() -> None:
    page = (ROOT / "docs" / "how-to" / "group-settings.md").read_text(encoding="utf-8")
    for name, known in GROUP_CONFIGS.items():
        assert f"| `{name}` |" in page, name
        assert len(known.doc) > 5, name
