"""Wheels with compiled modules, for who asks: KOHORT_COMPILED=1 in the environment of `pip install` or `build`.

Without it the wheel is pure Python, for any platform, and needs no compiler.
"""

from __future__ import annotations

import os
import runpy
from importlib import metadata
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        return ["mypy>=2.4,<2.5", "setuptools>=65", *RUNTIME] if wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable" or not wanted():
            return
        runpy.run_path(os.path.join(self.root, "tools", "compiled.py"))["main"]()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append("src/kohort/_compiled/*")
        build_data["dependencies"] = [f"librt=={metadata.version('librt')}", "mypy_extensions>=1"]


RUNTIME = ["msgspec>=0.20,<1"]
"""What the schema tables import."""


def wanted() -> bool:
    return os.environ.get("KOHORT_COMPILED", "0") not in ("", "0")
