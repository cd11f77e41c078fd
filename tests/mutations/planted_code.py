"""Kohort with texts of its modules replaced, in the running process.

`replace` gives functions that exist their new code, which takes no time. `reload` drops all modules of kohort and of
the tests; those that are changed are then imported from their changed source.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

ROOT = Path(__file__).parents[2]
KOHORT = ROOT / "src" / "kohort"
Change = tuple[str, str, str]
Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""
Functions = dict[Key, list[FunctionType]]
OF_A_FUNCTION = 0x1 | 0x2
"""CO_OPTIMIZED and CO_NEWLOCALS: the code is not of a module or a class."""


def functions() -> Functions:
    """All functions of kohort."""
    found: Functions = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(str(KOHORT)):
            found.setdefault(_key(thing.__code__), []).append(thing)
    return found


def replace(changes: Sequence[Change], known: Functions) -> bool:
    """False, and nothing is changed, where a change is not within functions that are known."""
    planned: list[tuple[FunctionType, CodeType]] = []
    for path in dict.fromkeys(change[0] for change in changes):
        file = KOHORT / path
        source = file.read_text(encoding="utf-8")
        texts = source, changed(source, path, changes)
        for old, new in _replacements(*(compile(text, str(file), "exec", dont_inherit=True) for text in texts)):
            having = known.get(_key(old), [])
            if not old.co_flags & OF_A_FUNCTION or not having or old.co_freevars != new.co_freevars:
                return False
            planned += [(function, new) for function in having]
    for function, code in planned:
        function.__code__ = code
    return True


def reload(changes: Sequence[Change]) -> None:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] == "kohort" or (file.startswith(str(ROOT / "tests")) and module is not THIS):
            del sys.modules[name]
    planter = Planter(changes)
    sys.meta_path.insert(0, planter)
    for name in planter.names:
        importlib.import_module(name)  # before pytest, which would load it in a way of its own


def changed(source: str, path: str, changes: Sequence[Change]) -> str:
    for changed_path, old, new in changes:
        if changed_path == path:
            if source.count(old) != 1:
                raise SystemExit(f"stands {source.count(old)} times in {path}, and not once: {old!r}")
            source = source.replace(old, new)
    return source


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _replacements(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost code that is not the same, or that of a module or a class if that itself is not."""
    if _own(old) != _own(new):
        yield old, new
        return
    for one, other in zip(_within(old), _within(new), strict=True):
        if not one.co_flags & OF_A_FUNCTION:
            yield from _replacements(one, other)
        elif not _is_same(one, other):
            yield one, other


def _is_same(one: CodeType, other: CodeType) -> bool:
    pairs = zip(_within(one), _within(other), strict=False)
    return _own(one) == _own(other) and all(_is_same(*pair) for pair in pairs)


def _within(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """All of it but where it stands, and but what stands within it."""
    constants = [(type(c), c.co_name if isinstance(c, CodeType) else repr(c)) for c in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, constants, names, counts, code.co_exceptiontable


class Planted(importlib.machinery.SourceFileLoader):
    """Loads a module with texts replaced."""

    def __init__(self, fullname: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(fullname, path)
        self.changes = changes

    def get_code(self, fullname: str) -> CodeType:
        [module] = {change[0] for change in self.changes}
        source = changed(self.get_source(fullname) or "", module, self.changes)
        return compile(source, self.path, "exec", dont_inherit=True)


class Planter:
    """Finds the modules that are changed before anybody else does."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.names: dict[str, list[Change]] = {}
        for change in changes:
            name = "kohort." + change[0].removesuffix(".py").replace("/", ".")
            self.names.setdefault(name, []).append(change)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None, name
        assert spec.origin is not None, name
        return importlib.util.spec_from_file_location(
            name, spec.origin, loader=Planted(name, spec.origin, self.names[name])
        )


THIS = sys.modules[__name__]
