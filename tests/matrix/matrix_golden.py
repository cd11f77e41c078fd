"""Requests that the relays kept, as test vectors: merged into tests/wire/golden/requests.json.

One request for each client, API and version, and for Produce one for each compression. Requests of the same version
of a client stay, so that a run without news changes nothing. Requests of another version of the client are removed.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

from relay import Kept

import kohort.wire.schemas
from kohort.wire import schema

REQUESTS = Path(__file__).parents[1] / "wire" / "golden" / "requests.json"
Place = tuple[str, str, int, int]
"""Client, API, version, compression."""


def merge(kept: dict[str, tuple[str, dict[Kept, bytes]]]) -> int:
    """The version and requests of each client. Returns how many are new."""
    known = _requests_by_key()
    entries: dict[Place, dict[str, Any]] = {}
    for entry in json.loads(REQUESTS.read_text()):
        entries[entry["client"], entry["api"], entry["version"], entry.get("compression", 0)] = entry
    new = 0
    for client, (client_version, frames) in kept.items():
        for place, entry in list(entries.items()):
            if place[0] == client and frames and entry["client_version"] != client_version:
                del entries[place]
        for (api_key, version, compression), frame in frames.items():
            if api_key not in known or version not in known[api_key].versions:
                continue  # an attempt at a version that nobody here speaks
            api = known[api_key].name.removesuffix("Request")
            if (client, api, version, compression) not in entries:
                new += 1
                entries[client, api, version, compression] = {
                    "client": client,
                    "client_version": client_version,
                    "api": api,
                    "version": version,
                    **({"compression": compression} if compression else {}),
                    "hex": frame.hex(),
                }
    lines = ",\n".join(json.dumps(entries[place]) for place in sorted(entries))
    REQUESTS.write_text(f"[\n{lines}\n]\n")
    return new


def _requests_by_key() -> dict[int, Any]:
    for module in pkgutil.iter_modules(kohort.wire.schemas.__path__):
        importlib.import_module(f"kohort.wire.schemas.{module.name}")
    return {
        known.api_key: known
        for known in schema._SCHEMAS.values()
        if known.api_key is not None and known.name.endswith("Request")
    }
