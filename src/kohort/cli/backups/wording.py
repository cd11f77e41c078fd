"""What the commands say of the data in a backup or a data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.cli.output import plural

if TYPE_CHECKING:
    from kohort.server.backups.backup import Contents

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage."


def contents_text(contents: Contents) -> str:
    """`3 topics with 8 partitions and 1,204,332 records, 2 groups`."""
    records = f"{contents.records:,} record{'' if contents.records == 1 else 's'}"
    parts = [
        f"{plural(contents.topics, 'topic')} with {plural(contents.partitions, 'partition')} and {records}",
        plural(contents.groups, "group"),
    ]
    if contents.transactional_ids:
        parts.append(plural(contents.transactional_ids, "transactional id"))
    if contents.users:
        parts.append(plural(contents.users, "user"))
    return ", ".join(parts)


def size_text(size: int) -> str:
    """`812 kB`, `48.1 MB`, `2.3 GB`."""
    if size < 1_000_000:
        return f"{max(size // 1000, 1)} kB"
    return f"{size / 1e6:.1f} MB" if size < 1_000_000_000 else f"{size / 1e9:.1f} GB"
