"""`python -m bench [NAME...]`: runs the benchmarks that are named, or `compare`; `--list` says which there are.

`python -m bench NAME --option...` hands the options to one that takes some, `--help` among them. `--all` runs all of
them one after another, which takes two hours.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from types import ModuleType

import bench


def main(words: list[str]) -> int:
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    names, options = words[:first], words[first:]
    known = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_"))
    if words == ["--list"]:
        for name in known:
            print(f"{name:10} {_summary(importlib.import_module(f'bench.{name}'))}")
        return 0
    if options == ["--all"] and not names:
        # `compare` runs its subjects.
        names, options = (
            [name for name in known if not hasattr(importlib.import_module(f"bench.{name}"), "SUBJECT")],
            [],
        )
    names = names or ["compare"]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    modules = {name: importlib.import_module(f"bench.{name}") for name in names}
    if options and (len(names) != 1 or not inspect.signature(modules[names[0]].main).parameters):
        print(f"{' '.join(names)}: no options are taken", file=sys.stderr)
        return 2
    for name, module in modules.items():
        print(f"== {name}: {_summary(module)}", flush=True)
        module.main(*([options] if options else []))
    return 0


def _summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
