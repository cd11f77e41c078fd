"""The settings of an ingest, kept beside its checkpoint so that restarts continue with the same schema.

The file `kohort-ingest.json` in the checkpoint's directory holds the partitioning of the lake, and how values are read
from which batch on. A change takes effect with the first batch that is not planned yet. A batch that was planned and
not finished is repeated with the old settings, so each of its records stays a row or stays a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from kohort.spark.files.directory import Directory
from kohort.spark.lake.row_shape import JsonSettings

FILE = "kohort-ingest.json"


class SettingsDiffer(ValueError):
    """A run asks for another partitioning than an earlier run with the same checkpoint."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The settings of an ingest. `versions` are pairs: the first batch, and how values are read (None: raw)."""

    partition_by: tuple[str, ...]
    versions: tuple[tuple[int, JsonSettings | None], ...] = field(default=())

    def of(self, batch: int) -> JsonSettings | None:
        """How the values of a batch are read; None: raw."""
        return [settings for first, settings in self.versions if first <= batch][-1]

    @property
    def latest(self) -> JsonSettings | None:
        return self.versions[-1][1] if self.versions else None

    def then(self, settings: JsonSettings | None, first_batch: int) -> Kept:
        """These settings, with other ones from a batch on. Returns itself if the latest settings are the same."""
        if self.versions and self.latest == settings:
            return self
        earlier = tuple(version for version in self.versions if version[0] < first_batch)
        return Kept(self.partition_by, (*earlier, (first_batch if earlier else 0, settings)))


def load(checkpoint: Directory, partition_by: Sequence[str]) -> Kept:
    """The kept settings, if any. Raises SettingsDiffer if the lake has another partitioning."""
    file = checkpoint / FILE
    if not file.exists():
        return Kept(tuple(partition_by))
    value = json.loads(file.read_text())
    before = tuple(value["partition_by"])
    if before != tuple(partition_by):
        raise SettingsDiffer(
            f"the lake is partitioned by {', '.join(before)} and this run asks for {', '.join(partition_by)}; "
            "take another output and checkpoint"
        )
    versions = tuple(
        (version["from_batch"], JsonSettings(**version["json"]) if version["json"] is not None else None)
        for version in value["versions"]
    )
    return Kept(before, versions)


def save(checkpoint: Directory, kept: Kept) -> None:
    value = {
        "version": 1,
        "partition_by": kept.partition_by,
        "versions": [
            {"from_batch": first, "json": asdict(settings) if settings is not None else None}
            for first, settings in kept.versions
        ],
    }
    (checkpoint / FILE).write_text(json.dumps(value, indent=1))
