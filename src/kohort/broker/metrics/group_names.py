"""Which groups have series: metrics.groups.include and metrics.groups.exclude, patterns with *, ? and [abc]."""

from __future__ import annotations

import re
from fnmatch import translate

from kohort.config import Config


class GroupNames:
    def __init__(self, config: Config) -> None:
        self._include = _pattern(config.metrics_groups_include)
        self._exclude = _pattern(config.metrics_groups_exclude)
        self._all = config.metrics_groups_include.strip() == "*" and not config.metrics_groups_exclude.strip()

    def has(self, group_id: str) -> bool:
        if self._all:
            return True
        return self._include.match(group_id) is not None and self._exclude.match(group_id) is None


def _pattern(text: str) -> re.Pattern[str]:
    """Matches a name that fits one of the patterns; none, without a pattern."""
    parts = [translate(part.strip()) for part in text.split(",") if part.strip()]
    return re.compile("|".join(parts) if parts else r"(?!)")
