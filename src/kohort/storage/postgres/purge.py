"""Deletes the rows of trimmed and deleted logs, some at a time, beside the turns.

Nobody reads these rows again: a log's start never falls, and its number is never given twice. So any node may delete
them at any time, and a failure is no trouble.
"""

from __future__ import annotations

from typing import Any

import asyncpg

ROWS_A_PIECE = 500

_NEXT = "SELECT no, gone, first_batch FROM kohort.log WHERE gone OR purged < first_batch ORDER BY no LIMIT 1"
_DELETE = """
WITH old AS (
  SELECT base_offset FROM kohort.batch WHERE log = $1 AND base_offset < $2 ORDER BY base_offset LIMIT $3
), deleted AS (
  DELETE FROM kohort.batch USING old WHERE log = $1 AND batch.base_offset = old.base_offset RETURNING 1
)
SELECT count(*) FROM deleted
"""
NO_END = 1 << 62


async def purge_piece(connection: asyncpg.Connection[Any]) -> bool:
    """Delete some rows. Returns whether there may be more."""
    row = await connection.fetchrow(_NEXT)
    if row is None:
        return False
    no, gone, first_batch = row
    end = NO_END if gone else first_batch
    if await connection.fetchval(_DELETE, no, end, ROWS_A_PIECE) < ROWS_A_PIECE:
        if gone:
            await connection.execute("DELETE FROM kohort.log WHERE no = $1 AND gone", no)
        else:
            await connection.execute("UPDATE kohort.log SET purged = $2 WHERE no = $1", no, first_batch)
    return True
