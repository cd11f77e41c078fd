"""Commands of sequences that tools send: describe, list and delete groups, and their settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kohort.conformance.play.frames import Options
from kohort.conformance.play.requests import GROUP_RESOURCE, alter_request, changed, request, wait_for

OF_GROUP = 8
"""The source of a group's own config."""


class AdministrationCommands:
    """`Stage` has the methods that are not here."""

    _configured: dict[str, set[str]]
    """The settings that each group was given."""

    if TYPE_CHECKING:
        _names: dict[Any, str]

        def _real(self, name: str) -> str: ...
        def _control(self, message: Any, version: int) -> Any: ...
        def _show(self, message: Any, group: str = "g") -> list[str]: ...

    def do_coordinator(self, words: list[str], options: Options) -> list[str]:
        """`coordinator KEY… [v= type=]`: FindCoordinator."""
        version, keys = int(options.get("v", 4)), list(map(self._real, words))
        named = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
        found = self._control(request("FindCoordinator", key_type=int(options.get("type", 0)), **named), version)
        rows = found.coordinators if version >= 4 else (found,)
        places = ("at a node" if row.node_id >= 0 and row.port > 0 else "nowhere" for row in rows)
        return [f"error={row.error_code} {place}" for row, place in zip(rows, places, strict=True)]

    def do_describe(self, words: list[str], options: Options) -> list[str]:
        """ConsumerGroupDescribe: `describe [g …] [v= operations=yes]`."""
        return self._describe("ConsumerGroupDescribe", "group_ids", words, options, 1)

    def do_describe_classic(self, words: list[str], options: Options) -> list[str]:
        return self._describe("DescribeGroups", "groups", words, options, 6)

    def _describe(self, api: str, field: str, words: list[str], options: Options, version: int) -> list[str]:
        authorized = {"include_authorized_operations": "operations" in options}
        describe = request(api, **{field: self._groups(words)}, **authorized)
        return self._show(self._control(describe, int(options.get("v", version))))

    def _groups(self, words: list[str]) -> list[str]:
        return [self._real(name) for name in words or ["g"]]

    def do_list(self, words: list[str], options: Options) -> list[str]:
        """`list [states=Stable,Empty types=consumer]`: of the groups of this sequence."""
        filters = {f"{name}_filter": options[name].split(",") for name in ("states", "types") if name in options}
        answer = self._control(request("ListGroups", **filters), int(options.get("v", 5)))
        mine = tuple(row for row in answer.groups if row.group_id in self._names)
        return self._show(changed(answer, groups=mine))

    def do_delete_group(self, words: list[str], options: Options) -> list[str]:
        return self._show(self._control(request("DeleteGroups", groups_names=self._groups(words)), 2))

    def do_config(self, words: list[str], options: Options) -> list[str]:
        """`config [g] consumer.session.timeout.ms=1000`; an empty value deletes it. Waits until it can be read."""
        group = words[0] if words else "g"
        changes = {name: value or None for name, value in options.items() if name != "validate"}
        alter = changed(alter_request(self._real(group), changes), validate_only="validate" in options)
        answer = self._control(alter, 1)
        self._configured.setdefault(group, set()).update(changes)
        if not answer.responses[0].error_code and "validate" not in options:
            wait_for(lambda: self._shows(group, options), "the config cannot be read")
        return self._show(answer)

    def _shows(self, group: str, configs: Options) -> bool:
        rows = self._configs(group, configs, {}).results[0].configs
        own = {row.name: row.value for row in rows if row.config_source == OF_GROUP}
        return all(own.get(name, "") == value for name, value in configs.items())

    def do_configs(self, words: list[str], options: Options) -> list[str]:
        """`configs [g] [keys=a,b synonyms=yes]`: DescribeConfigs."""
        keys = options["keys"].split(",") if "keys" in options else None
        return self._show(self._configs(words[0] if words else "g", keys, options))

    def _configs(self, group: str, keys: Iterable[str] | None, options: Options) -> Any:
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self._real(group), "configuration_keys": keys}
        describe = request("DescribeConfigs", resources=[resource], include_synonyms="synonyms" in options)
        return self._control(describe, 4)
