"""An operator of consumer groups: sets group configs, freezes rebalances, removes the configs again.

It uses only settings that change when and how partitions move, since the onlooker relies on the server's sessions and
intervals. At the healing it removes all settings: a freeze could last long after a jump of the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.coordinator.settings.group_settings import HOLD_UNTIL
from kohort.simulator.actors.workload import Paced
from kohort.simulator.world.network import Link
from kohort.wire.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP = 32
SET, DELETE = 0, 1
LONGEST_HOLD_MS = 12_000
CHOICES: dict[str, tuple[str, ...]] = {
    "consumer.assignor": ("uniform", "range", "rack", "lag"),
    "consumer.assignment.interval.ms": ("0", "300", "4000"),
    "consumer.initial.rebalance.delay.ms": ("0", "500", "3000"),
    "consumer.heartbeat.hold.enable": ("true", "false"),
    "consumer.handover.max.partitions": ("0", "1", "2"),
    "consumer.handover.interval.ms": ("100", "1500"),
    "consumer.hold.until.members": ("0", "2", "3"),
    "consumer.hold.dead.members": ("true", "false"),
}
NOTHING: dict[str, str | None] = dict.fromkeys((*CHOICES, HOLD_UNTIL))


def alter_request(group: str, changes: Mapping[str, str | None]) -> IncrementalAlterConfigsRequest:
    """Set configs of a group, or delete those without a value."""
    configs = tuple(
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in changes.items()
    )
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


class Operator(Paced):
    leaves = False
    """Remove all settings, and end once the server has confirmed it."""

    def act(self, link: Link) -> None:
        if self.leaves:
            self._set(link, NOTHING)
            return
        changes: dict[str, str | None] = {
            name: None if self.random.random() < 0.3 else self.random.choice(CHOICES[name])
            for name in self.random.sample(list(CHOICES), self.random.randrange(1, 4))
        }
        if self.random.random() < 0.5:
            changes[HOLD_UNTIL] = self._until()
        if self.random.random() < 0.15:
            changes["consumer.assignor"] = "astrology"  # refused, together with all others of the request
        self._set(link, changes)

    def _set(self, link: Link, changes: dict[str, str | None]) -> None:
        self.tell("takes everything back" if changes is NOTHING else f"sets {changes}")
        link.ask(alter_request(self.options["group"], changes), 1, "taken back" if changes is NOTHING else "set")

    def _until(self) -> str | None:
        if self.random.random() < 0.3:
            return None
        return str(self.process.clock() + self.random.randrange(1_000, LONGEST_HOLD_MS))

    def end(self) -> None:
        self.leaves = True

    def on_answer(self, link: Link, tag: Any, response: Any) -> None:
        [answer] = response.responses
        if answer.error_code:
            self.tell(f"is refused: {answer.error_message}")
        elif tag == "taken back":
            super().end()
