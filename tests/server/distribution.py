"""Installed packages that bring assignors: what Python finds of them on its path."""

from __future__ import annotations

from pathlib import Path


def describe(
    site: Path, name: str, version: str, entry_points: dict[str, dict[str, str]], form: str = "dist-info"
) -> None:
    """Write a distribution's description beside its modules, as an installer does."""
    folder = site / f"{name.replace('-', '_')}-{version}.{form}"
    folder.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
