"""What exists is documented where a reader looks for it."""

from __future__ import annotations

import re
from pathlib import Path

from kohort import config
from kohort.coordinator.settings.group_settings import GROUP_CONFIGS

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "kohort"
    for name in set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text)):
        places = (ROOT / name, source / name, *source.glob(f"*/{name}"))
        assert any(place.exists() for place in places), f"ARCHITECTURE.md names {name}, which does not exist"


def test_every_setting_says_what_it_does() -> None:
    for name, setting in config.SETTINGS.items():
        assert len(setting.metadata["doc"]) > 5, name


def test_every_config_of_groups_is_in_its_page() -> None:
    page = (ROOT / "docs" / "group-settings.md").read_text(encoding="utf-8")
    for name, known in GROUP_CONFIGS.items():
        assert f"| `{name}` |" in page, name
        assert len(known.doc) > 5, name
