"""MkDocs hook: the reference pages that are made from the code, and the repository's own pages beside docs/.

`mkdocs build` calls `on_files` and `on_page_markdown`. The pages of commands, settings and options are generated on
each build; `tests/structure/test_site.py` checks that they have all entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {"architecture.md": "ARCHITECTURE.md", "style.md": "STYLE.md", "changelog.md": "CHANGELOG.md"}
"""Page of the site: file at the root of the repository."""


def examples() -> dict[str, Path]:
    """Page of the site: the program that it shows."""
    return {f"examples/{path.stem}.md": path for path in sorted((ROOT / "examples").glob("*.py"))}


# -- commands


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of every command and its click command, groups included, in the order of `--help`."""
    from kohort.cli.commands import LazyGroup, app

    command = command or typer.main.get_command(app)
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(command.loaded(name) if isinstance(command, LazyGroup) else child, (*path, name))


def help_text(words: tuple[str, ...]) -> str:
    """What `kohort WORDS --help` prints."""
    from kohort.cli.commands import app

    result = CliRunner().invoke(
        app, [*words, "--help"], prog_name="kohort", env={"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    )
    if result.exit_code:
        raise RuntimeError(f"kohort {' '.join(words)} --help failed: {result.output}")
    return result.output


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "Generated: what `--help` of each command prints. The guide is [the commands](../how-to/cli.md).",
        "",
    ]
    for words, _ in commands():
        lines += [
            f"{'#' * (len(words) + 2)} kohort {' '.join(words)}".rstrip(),
            "",
            "```text",
            help_text(words).strip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text that is safe in a Markdown table: one line, no pipes, no HTML."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


# -- settings


def shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`" if text else "empty"


def settings_page() -> str:
    from kohort.broker.topics.topic_configs import TOPIC_CONFIGS
    from kohort.config import ALIASES, DYNAMIC, SETTINGS
    from kohort.coordinator.settings.group_settings import GROUP_CONFIGS

    lines = [
        "# Settings",
        "",
        "Generated from the code. How to set them: [the server](../how-to/server.md#settings), "
        "[single groups](../how-to/group-settings.md), [tests](../how-to/testing.md#settings).",
        "",
        "## Server",
        "",
        "`kohort serve --list-settings` prints the same. The names are Kafka's where Kafka has the setting.",
        "",
        "| setting | default | meaning | allowed |",
        "| --- | --- | --- | --- |",
    ]
    for name, setting in SETTINGS.items():
        meta = setting.metadata
        bounds = ", ".join(f"`{word}`" for word in meta["one_of"]) or between(meta["low"], meta["high"])
        lines.append(f"| `{name}` {{#{name}}} | {shown(setting.default)} | {cell(meta['doc'])} | {bounds} |")
    lines += [
        "",
        "These change while the server runs, by any admin client, for one broker or for all; the others are read-only "
        "([the server](../how-to/server.md#settings)):",
        "",
        *(f"- `{name}`" for name in sorted(DYNAMIC)),
        "",
        "Other names of a setting:",
        "",
    ]
    lines += [
        f"- `{name}` is `{known}`" + (f" × {factor}" if factor != 1 else "")
        for name, (known, factor) in ALIASES.items()
    ]
    for title, intro, configs in (
        ("Single groups", "`kohort groups configs GROUP --set NAME=VALUE`, or any admin client.", GROUP_CONFIGS),
        ("Topics", "`kohort topics create --config NAME=VALUE`, or any admin client.", TOPIC_CONFIGS),
    ):
        lines += ["", f"## {title}", "", intro, "", "| config | default | meaning |", "| --- | --- | --- |"]
        for name, known in configs.items():
            lines.append(f"| `{name}` | {shown(known.default)} | {cell(known.doc)} |")
    return "\n".join(lines) + "\n"


def between(low: int | None, high: int | None) -> str:
    if low is None and high is None:
        return ""
    return (
        f"{low} to {high}" if low is not None and high is not None else f"from {low}" if high is None else f"to {high}"
    )


# -- Spark's options


def options_page() -> str:
    from kohort.spark.options import exactly_once, member, names, sink

    lines = [
        "# Spark options by name",
        "",
        "Generated from the code. What they mean: [the source](../how-to/spark-source.md#options), "
        "[shared groups](../how-to/spark-sharing.md#settings), [the sink](../how-to/spark-sink.md#options).",
        "",
    ]
    consumer = {f"kafka.{name}" for name in names.USED} | member.SETTINGS
    for title, intro, found in (
        ("Source: options of Spark's Kafka source", "", names.SPARK),
        ("Source: options of kohort", "", names.OWN),
        ("Source: settings of Kafka's consumer that have an effect", "", sorted(consumer)),
        (
            "Source: settings of TLS and SASL",
            "See [TLS and SASL](../how-to/security.md). The names begin with:",
            [f"kafka.{name}" for name in names.SECURITY],
        ),
        ("Source: accepted without effect", "", sorted(f"kafka.{name}" for name in names.WITHOUT_EFFECT)),
        ("Sink: options of kohort", "", ("topic", *exactly_once.OWN)),
        (
            "Sink: settings that have an effect with delivery=exactly-once",
            "",
            sorted(f"kafka.{name}" for name in exactly_once.USED | exactly_once.REQUIRED.keys()),
        ),
        (
            "Sink: accepted without effect",
            "",
            sorted(f"kafka.{name}" for name in sink.WITHOUT_EFFECT - exactly_once.USED),
        ),
    ):
        lines += [f"## {title}", "", *([intro, ""] if intro else []), *(f"- `{name}`" for name in found), ""]
    for title, refused in (("Source: refused", names.REFUSED), ("Sink: refused", sink.REFUSED)):
        lines += [f"## {title}", "", *(f"- `kafka.{name}`: {cell(why)}" for name, why in refused.items()), ""]
    return "\n".join(lines)


# -- MkDocs


@cache
def pages() -> dict[str, str]:
    """Page of the site: its Markdown."""
    made = {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/spark-options.md": options_page(),
    }
    for page, name in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        made[page] = text.replace("](docs/", "](").replace("](README.md", "](index.md")
    for page, path in examples().items():
        made[page] = f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"
    return made


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for page, text in pages().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/: to a page of the site where there is one, else the path as text."""
    up = "../" * page.file.src_uri.count("/")

    def site(match: re.Match[str]) -> str:
        text, path = match[1], match[2]
        for name, target in ROOT_PAGES.items():
            if path == target:
                return f"[{text}]({up}{name})"
        if re.fullmatch(r"examples/\w+\.py", path):
            return f"[{text}]({up}{path.removesuffix('.py')}.md)"
        return text if path in text else f"{text} (`{path}`)"

    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+((?:tests|src|examples|bench|tools|[A-Z]+\.md)[^)#]*)\)", site, markdown)
