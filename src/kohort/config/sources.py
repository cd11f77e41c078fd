"""Settings from text: a .properties or TOML file, the environment (`KOHORT_GROUP_INITIAL_REBALANCE_DELAY_MS`) and
flags.

Later sources win. An unknown name or a bad value is a `ConfigError` that names it and says where it stood.

Kafka has settings for things that kohort does not do. A server must start with a broker's whole properties file, so
those names are accepted without effect and listed in `Config.without_effect`, for one warning at the start. Settings of
security are refused: a server that ignored them would be open where its owner believes it is closed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kohort.config.checks import check
from kohort.config.compatibility import preset
from kohort.config.declaration import ConfigError
from kohort.config.listeners import JAAS, PREFIX
from kohort.config.memory import share_memory
from kohort.config.parsing import parse_value
from kohort.config.settings import SETTINGS, Config, property_name
from kohort.properties import read_properties

ALIASES: dict[str, tuple[str, int]] = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "node.id": ("broker.id", 1),
}
"""Other names of a setting, and what their value is multiplied by."""

WITHOUT_EFFECT = r"""
    (alter\.log\.dirs|broker\.heartbeat|broker\.session|client\.quota|compression\.(gzip|lz4|zstd)|controlled\.shutdown
    |controller|delegation\.token|election|group\.(consumer|coordinator|share|streams)|initial\.broker
    |kafka\.metrics|leader|log\.(cleaner|flush|index|initial|local|message|roll|segment)|metadata|metrics?
    |offsets\.(commit|load|topic)|producer\.id\.expiration|quota|remote|replica|replication|share|telemetry|transaction
    |transactional|unclean|zookeeper)(\.\w+)+
    | \w+\.(purgatory\.purge\.interval\.requests|policy\.class\.name)
    | auto\.(include\.jmx\.reporter|leader\.rebalance\.enable) | background\.threads | broker\.id\.generation\.enable
    | control\.plane\.listener\.name | delete\.topic\.enable | early\.start\.listeners
    | inter\.broker\.(protocol\.version|listener\.name) | log\.(dir|dirs|dir\.failure\.timeout\.ms|preallocate)
    | max\.(incremental\.fetch\.session\.cache\.slots|request\.partition\.size\.limit)
    | num\.(io\.threads|network\.threads|recovery\.threads\.per\.data\.dir|replica\.alter\.log\.dirs\.threads
      |replica\.fetchers)
    | process\.roles | queued\.max\.requests | reserved\.broker\.max\.id | server\.max\.startup\.time\.ms
    | sasl\.mechanism\.inter\.broker\.protocol | security\.inter\.broker\.protocol
    | ssl\.(protocol|endpoint\.identification\.algorithm|secure\.random\.implementation
      |keymanager\.algorithm|trustmanager\.algorithm)
    | socket\.(listen\.backlog\.size|receive\.buffer\.bytes|send\.buffer\.bytes) | unstable\..*
    """
"""Settings of Apache Kafka's brokers that kohort does not use (yet). A verbose regular expression."""

REFUSED = (
    r"(ssl|sasl|security|authorizer|principal|password\.encoder|connections\.max\.reauth"
    r"|connection\.failed\.authentication)(\.\w+)*"
)
"""Settings of security, which are refused."""

NOT_SETTINGS = (
    r"KOHORT_(BOOTSTRAP_SERVER|COMMAND_CONFIG|COMPILED|JOBS|OPTIMIZE|PURE|SPARK_DECODER|SERVICE_(HOST|PORT)|PORT)(_.*)?"
)
"""Environment variables with our prefix that are not settings: those of the commands, and those that Kubernetes sets
for a service."""


def load(
    overrides: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Build a Config from a file, the environment (`KOHORT_…`) and overrides; later ones win."""
    values: dict[str, Any] = {}
    without_effect: dict[str, None] = {}
    of_listeners: dict[str, str] = {}
    for origin, texts in (
        (f" (in {file})", _read_file(file) if file is not None else {}),
        (" (in the environment)", _from_environment(os.environ if environ is None else environ)),
        ("", dict(overrides)),
    ):
        # If one source gives a setting under two names, the precise one wins, as log.retention.ms does in Kafka.
        for name in sorted(texts, key=lambda name: name not in ALIASES):
            known, factor = ALIASES.get(name, (name, 1))
            if known in SETTINGS:
                try:
                    values[SETTINGS[known].name] = parse_value(known, texts[name], factor)
                except ConfigError as error:
                    raise ConfigError(f"{error}{origin}") from None
            elif name.lower().startswith(PREFIX):
                of_listeners[name.lower()] = texts[name].strip()
            elif not _accept_without_effect(name, origin):
                raise ConfigError(f"unknown setting {name}{origin}{_hint(name)}")
            else:
                without_effect[name] = None
    settings = {**share_memory(preset(values)), "of_listeners": tuple(of_listeners.items())}
    return check(Config(**settings, without_effect=tuple(without_effect)))


def _accept_without_effect(name: str, origin: str) -> bool:
    if re.fullmatch(WITHOUT_EFFECT, name, re.VERBOSE) is not None:
        return True
    if re.fullmatch(REFUSED, name):
        raise ConfigError(f"{name}{origin} is known to Kafka, but not served by kohort yet")
    return False


def _hint(name: str) -> str:
    import difflib  # rarely needed, never at the start

    near = difflib.get_close_matches(name, [*SETTINGS, *ALIASES], n=1)
    return f"; did you mean {near[0]}?" if near else "; kohort serve --list-settings prints all"


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        property_name(variable.removeprefix("KOHORT_").lower()): value
        for variable, value in environ.items()
        if variable.startswith("KOHORT_") and not re.fullmatch(NOT_SETTINGS, variable)
    }


def _read_file(path: Path) -> dict[str, str]:
    try:
        if path.suffix != ".toml":
            found = {name: value.strip() for name, value in read_properties(path).items()}
        else:
            import tomllib

            found = dict(_flatten(tomllib.loads(path.read_text(encoding="utf-8")), ""))
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IROTH and (secret := next(filter(_is_secret, found), "")):
        raise ConfigError(f"{path} holds {secret} and all users of this machine can read it; run chmod 600 {path}")
    return found


def _is_secret(name: str) -> bool:
    if name.endswith(f".{JAAS}"):
        return True
    known = name.split(".", 3)[-1] if name.lower().startswith(PREFIX) else name
    return known in SETTINGS and bool(SETTINGS[known].metadata["secret"])


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield prefix + name, ",".join(str(item) for item in value)
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value)
