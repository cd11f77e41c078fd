"""What exists is documented: files in ARCHITECTURE.md, settings and commands where a user looks for them."""

from __future__ import annotations

import re
from pathlib import Path

from kohort import config
from kohort.coordinator.settings.group_settings import GROUP_CONFIGS

ROOT = Path(__file__).parents[2]


def test_the_file_map_names_every_module_and_nothing_else() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    file_map = text.split("## File map", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_*]+)*(?:\.py|/))`", file_map))
    folders = {name for name in named if name.endswith("/") or "*" in name}
    source = ROOT / "src" / "kohort"
    present = {
        path.relative_to(source).as_posix() for path in source.rglob("*.py") if path.name not in ("__init__.py",)
    }
    covered = {name for name in present if name in named or any(_covers(folder, name) for folder in folders)}
    assert present == covered, f"ARCHITECTURE.md's file map lacks {sorted(present - covered)}"
    for name in named - folders:
        assert name in present, f"ARCHITECTURE.md's file map names {name}, which does not exist"


def _covers(folder: str, name: str) -> bool:
    return name.startswith(folder.removesuffix("*.py"))


def test_every_setting_says_what_it_does() -> None:
    for name, setting in config.SETTINGS.items():
        assert len(setting.metadata["doc"]) > 5, name


def test_every_config_of_groups_is_in_its_page() -> None:
    page = (ROOT / "docs" / "group-settings.md").read_text(encoding="utf-8")
    for name, known in GROUP_CONFIGS.items():
        assert f"| `{name}` |" in page, name
        assert len(known.doc) > 5, name
