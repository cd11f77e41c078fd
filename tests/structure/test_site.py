"""The documentation site builds without a warning: links, anchors, navigation; and each public thing has its entry."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import docs_reference

from kohort import client, config
from kohort.cli.commands import load
from kohort.coordinator.settings.group_settings import GROUP_CONFIGS
from kohort.spark.options import names

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mkdocs.yml is strict: a broken link or anchor, or a page outside the navigation, ends the build."""
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def text_of(site: Path, page: str) -> str:
    return html.unescape((site / "reference" / page).read_text(encoding="utf-8"))


def test_every_page_loads_from_the_site_alone(site: Path) -> None:
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]*\ssrc=["']?https?:|<link[^>]*rel=["']?stylesheet[^>]*href=["']?https?:"""
    )
    assert [path for path in site.rglob("*.html") if loaded.search(path.read_text(encoding="utf-8"))] == []


def test_every_setting_has_its_entry(site: Path) -> None:
    page = text_of(site, "settings.html")
    assert [name for name in config.SETTINGS if f'id="{name}"' not in page] == []
    assert [name for name in GROUP_CONFIGS if f"<code>{name}</code>" not in page] == []


def test_every_command_and_option_has_its_entry(site: Path) -> None:
    page = text_of(site, "commands.html")
    found = list(docs_reference.commands())
    assert len(found) > 20
    for words, command in found:
        path = " ".join(("kohort", *words))
        assert f'id="{path.replace(" ", "-")}"' in page, path
        shown = page.split(f'id="{path.replace(" ", "-")}"')[1].split("</pre>")[0]
        for parameter in command.params:
            for option in parameter.opts if not getattr(parameter, "hidden", False) else ():
                assert not option.startswith("-") or option in shown, f"{path} {option}"
    assert load("groups").commands.keys() <= {words[-1] for words, _ in found if words[:1] == ("groups",)}


def test_every_spark_option_has_its_entry(site: Path) -> None:
    page = text_of(site, "spark-options.html")
    of_kafka = (f"kafka.{name}" for name in (*names.USED, *names.WITHOUT_EFFECT, *names.REFUSED))
    known = [*names.SPARK, *names.OWN, *of_kafka]
    assert [name for name in known if f"<code>{name}</code>" not in page] == []


def test_every_public_name_of_the_client_has_its_entry(site: Path) -> None:
    page = text_of(site, "client.html")
    assert [
        name
        for name in client.__all__
        if f'id="kohort.client.{name}"' not in page and f"<code>{name}</code>" not in page
    ] == []
    assert 'id="kohort.client.BlockingGroupConsumer.fetch"' in page, "a member without a docstring has no entry"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    generated = docs_reference.pages().keys()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve()
        inside = path.is_relative_to(ROOT / "docs") and path.relative_to(ROOT / "docs").as_posix() in generated
        assert path.exists() or inside, f"{page.name} links to {target}"
        assert inside is False or page.is_relative_to(ROOT / "docs"), (
            f"{page.name} links to {target}, a page of the site"
        )


def test_every_anchor_of_the_pages_at_the_root_exists() -> None:
    from markdown.extensions.toc import slugify

    for page in ROOT.glob("*.md"):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                text = (page.parent / target if target else page).read_text(encoding="utf-8")
                known = {slugify(heading, "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
                assert anchor in known, f"{page.name} links to {target}#{anchor}"
