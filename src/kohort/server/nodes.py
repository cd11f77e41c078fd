"""The nodes on a database, for commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.storage.protocol import StorageError, Unavailable

if TYPE_CHECKING:
    from kohort.storage.postgres.report import NodeStatus


def nodes_of(url: str) -> list[NodeStatus]:
    """Raises StorageError, Unavailable."""
    try:
        from kohort.storage.postgres.report import nodes
    except ImportError as error:
        raise StorageError(f"storage needs {error.name}: pip install 'kohort[postgres]'") from None
    return nodes(url)


__all__ = ["StorageError", "Unavailable", "nodes_of"]
