"""Files of Java properties, as Kafka's tools and servers read them, except that they are UTF-8.

A line is `name=value`, `name:value` or `name value`; `#` and `!` begin comments; a backslash continues a line or
escapes a character. javaproperties does the work; it is imported only when a file is read, to keep the start short.
"""

from __future__ import annotations

from pathlib import Path


def read_properties(path: str | Path) -> dict[str, str]:
    """Raises ValueError, which names the file and never a value: it may be a password."""
    from javaproperties import loads

    try:
        return dict(loads(Path(path).read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{path} has a \\u that four hexadecimal digits do not follow") from None
