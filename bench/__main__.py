"""`python -m bench [name...]`: runs the benchmarks that are named, or all of them; `--list` says which there are."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType

import bench


def main(names: list[str]) -> int:
    known = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_"))
    if names == ["--list"]:
        for name in known:
            print(f"{name:10} {_summary(importlib.import_module(f'bench.{name}'))}")
        return 0
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        module = importlib.import_module(f"bench.{name}")
        print(f"== {name}: {_summary(module)}", flush=True)
        module.main()
    return 0


def _summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
