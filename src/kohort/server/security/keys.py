"""The public keys that sign tokens: a JSON Web Key Set (RFC 7517) from an https server or a file.

A thread reads it, so that neither a login nor the event loop waits for it: hourly, after a failure with growing pauses,
and for a key that is not known. Then the login is refused, and the client's next attempt finds the key. Redirects are
not followed, and at most MOST_BYTES are read. Keys stay in use when a later reading fails.

As in Kafka, the last MOST_MISSING unknown ids are remembered for MISSING_S, in which they cause no other reading; there
are LEAST_PAUSE_S between two readings besides. Source: RefreshingHttpsJwks.java; unlike there, a server that cannot be
reached does not prevent the start, and a file is read again too.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from kohort.config import JWKS_URL, BearerTerms, ConfigError
from kohort.server import log

MOST_BYTES = 1024 * 1024
MOST_KEYS = 1_000
MOST_KID = 1_000
"""Characters of a key's id."""
LEAST_RSA_BITS, MOST_RSA_BITS = 2_048, 8_192
MOST_MISSING = 16
MISSING_S = 60.0
LEAST_PAUSE_S = 1.0
SOCKET_S, FETCH_S = 10.0, 30.0
"""The longest time of one read, and of all."""

RSA = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
BY_CURVE = {
    "P-256": frozenset(("ES256",)),
    "P-384": frozenset(("ES384",)),
    "P-521": frozenset(("ES512",)),
    "Ed25519": frozenset(("EdDSA",)),
}
NO_KEYS = "no public key with an id (kid) for RSA of 2,048 bits or more, ECDSA or Ed25519"
PUBLIC_FIELDS = ("kty", "n", "e", "crv", "x", "y")


class Key(NamedTuple):
    public: Any
    algorithms: frozenset[str]
    """Those that go with the key."""


class KeySet:
    """Raises ConfigError if a file cannot be used."""

    def __init__(self, terms: BearerTerms, listener: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._terms = terms
        self._listener = listener
        self._clock = clock
        self._keys: Mapping[str, Key] = {}
        self._missing: OrderedDict[str, float] = OrderedDict()
        """Unknown ids, and when each was seen first."""
        self._failure = ""
        """Why the last reading failed."""
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self.is_file = terms.url.startswith("file:")
        if self.is_file:
            try:
                self._keys = parse(read(terms.url, ""))
            except (OSError, ValueError) as error:
                raise ConfigError(f"{JWKS_URL}: the keys in {terms.url} cannot be used: {_reason(error)}") from None
            if not self._keys:
                raise ConfigError(f"{JWKS_URL}: {terms.url} has {NO_KEYS}")
        elif terms.ca_location:
            try:
                ssl.create_default_context(cafile=terms.ca_location)
            except OSError as error:
                where = f"ssl.truststore.location of OAUTHBEARER at the listener {listener}"
                raise ConfigError(f"{where}: {terms.ca_location} cannot be used: {_reason(error)}") from None

    def start(self) -> None:
        threading.Thread(target=self._run, name="kohort-keys", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._wanted.set()

    def find(self, kid: str) -> Key | None:
        """The key with this id; called by one thread. If there is none, the keys are read again, for a later call."""
        key = self._keys.get(kid)
        if key is None and len(kid) <= MOST_KID and self._is_new(kid):
            self._wanted.set()
        return key

    def _is_new(self, kid: str) -> bool:
        now = self._clock()
        seen = self._missing.get(kid)
        if seen is not None and now - seen < MISSING_S:
            self._missing.move_to_end(kid)
            return False
        self._missing[kid] = now
        self._missing.move_to_end(kid)
        if len(self._missing) > MOST_MISSING:
            self._missing.popitem(last=False)
        return True

    # -- the thread

    def _run(self) -> None:
        if self.is_file:  # it has been read
            self._wait()
        failures = 0
        while not self._stopped.is_set():
            if self._read(failures):
                failures = 0
                self._stopped.wait(LEAST_PAUSE_S)
                self._wait()
            else:
                failures += 1

    def _wait(self) -> None:
        self._wanted.wait(self._terms.refresh_s)
        self._wanted.clear()

    def _read(self, failures: int) -> bool:
        """False after a failure, and a pause."""
        where = {"listener": self._listener, "url": self._terms.url.partition("?")[0]}
        try:
            keys = parse(read(self._terms.url, self._terms.ca_location))
        except (OSError, ValueError, http.client.HTTPException) as error:
            first, longest = self._terms.retry_s
            pause_s = min(first * 2 ** min(failures, 30), longest)
            reason = _reason(error)
            if reason != self._failure:
                self._failure = reason
                hint = "the former keys stay" if self._keys else "no token is accepted until then"
                log.warning("the keys of tokens cannot be read; it is tried again", **where, reason=reason, hint=hint)
            self._stopped.wait(pause_s)
            return False
        if failures or keys.keys() != self._keys.keys():
            log.info("the keys of tokens were read", **where, keys=len(keys))
        self._failure = ""
        self._keys = keys
        if not keys:
            log.warning("no token is accepted", **where, reason=f"it has {NO_KEYS}")
        return True


def read(url: str, ca_location: str) -> bytes:
    """Raises OSError, ValueError, HTTPException."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            data = file.read(MOST_BYTES + 1)
        _check_size(data)
        return data
    context = ssl.create_default_context(cafile=ca_location or None)
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    ends = time.monotonic() + FETCH_S
    received = bytearray()
    with opener.open(request, timeout=SOCKET_S) as answer:
        if answer.status != http.HTTPStatus.OK:
            raise ValueError(f"HTTP {answer.status}")
        while chunk := answer.read1(65_536):
            received += chunk
            _check_size(received)
            if time.monotonic() > ends:
                raise ValueError(f"it takes longer than {FETCH_S:.0f} s")
    return bytes(received)


def _check_size(data: bytes | bytearray) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would let the server of the keys choose another one."""

    def redirect_request(self, *_: object) -> None:
        return None


def parse(data: bytes) -> dict[str, Key]:
    """The keys for signatures, by their ids. Others are left out. Raises ValueError."""
    try:
        found = list(json.loads(data)["keys"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("it is no JSON Web Key Set") from None
    keys = {}
    for each in found[:MOST_KEYS]:
        if isinstance(each, dict) and isinstance(kid := each.get("kid"), str) and 0 < len(kid) <= MOST_KID:
            try:
                key = _key(each)
            except Exception:  # PyJWT and cryptography raise many kinds for a key that makes no sense
                continue
            if key is not None:
                keys[kid] = key
    return keys


def _key(fields: Mapping[str, Any]) -> Key | None:
    if fields.get("use", "sig") != "sig" or "verify" not in fields.get("key_ops", ("verify",)):
        return None
    public = {name: fields[name] for name in PUBLIC_FIELDS if name in fields}
    match public.get("kty"):
        case "RSA":
            key: Any = RSAAlgorithm.from_jwk(public)
            assert isinstance(key, RSAPublicKey)
            if not LEAST_RSA_BITS <= key.key_size <= MOST_RSA_BITS:
                return None
            algorithms = RSA
        case "EC":
            key = ECAlgorithm.from_jwk(public)
            algorithms = BY_CURVE[public["crv"]]
        case "OKP":
            key = OKPAlgorithm.from_jwk(public)
            algorithms = BY_CURVE[public["crv"]]
        case _:
            return None
    if "alg" in fields:
        algorithms &= {fields["alg"]}
    return Key(key, algorithms) if algorithms else None


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP {error.code}" + (", a redirect, is not followed" if 300 <= error.code < 400 else "")
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
