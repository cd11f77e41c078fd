"""JSON web tokens of OAUTHBEARER: the signature, and then what they claim.

The keys come from the settings alone. Headers of a token that name or carry a key (jku, jwk, x5u, x5c) are ignored, and
`kid` is only looked up. An algorithm must fit the key, and only those with a public key are known: neither `none` nor
HMAC, for which the public key would be the secret. Times, issuer and audience are looked at after the signature.
Source: BrokerJwtValidator.java; unlike there, `kid` is demanded, and a token from the future is refused.

A verification takes 0.2 to 1 ms, most of it PyJWT's, so it runs in a thread. The reason of a refusal quotes of a token
the key's id and the algorithm alone.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jwt

from kohort.config import BearerTerms
from kohort.server.security.keys import Key
from kohort.server.security.mechanisms import MOST_NAME, Verified

MOST_TOKEN, MOST_HEADER = 16_384, 8_192
"""Characters of a token, and of its header, which is read before the signature."""
MOST_QUOTED = 60
"""Characters of a key's id in the log."""


class Keys(Protocol):
    def find(self, kid: str) -> Key | None: ...


class _Refused(Exception):
    """The text is for the log."""


class Verifier:
    def __init__(self, terms: BearerTerms, keys: Keys, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970."""
        self._terms = terms
        self._keys = keys
        self._clock = clock
        self._jws = jwt.PyJWS()

    def verify(self, token: str) -> Verified | str:
        """The user, or why the token is refused."""
        if len(token) > MOST_TOKEN:
            return f"the token has more than {MOST_TOKEN} characters"
        try:
            return self._verified(token)
        except _Refused as refused:
            return str(refused)
        except jwt.InvalidSignatureError:
            return "the signature of the token is wrong"
        except Exception as error:  # what a hostile token can cause has no end, and must not stop the server
            return f"the token is malformed ({type(error).__name__})"

    def _verified(self, token: str) -> Verified:
        header = _header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(kid, str) or not kid:
            raise _Refused("the token does not name its key (kid)")
        if "crit" in header:
            raise _Refused("the token has headers that it calls critical")
        key = self._keys.find(kid)
        if key is None:
            raise _Refused(f"the token's key {kid[:MOST_QUOTED]!r} is not known")
        if not isinstance(algorithm, str) or algorithm not in key.algorithms:
            raise _Refused(f"the algorithm {str(algorithm)[:MOST_QUOTED]!r} does not go with the token's key")
        claims = json.loads(self._jws.decode(token, key.public, algorithms=[algorithm]))
        if not isinstance(claims, dict):
            raise _Refused("the token has no claims")
        return Verified(self._user(claims), self._checked(claims))

    def _user(self, claims: Mapping[str, Any]) -> str:
        name = self._terms.user_claim
        user = claims.get(name)
        if not isinstance(user, str) or not user.strip() or len(user) > MOST_NAME:
            raise _Refused(f"the claim {name} of the token is no user's name")
        return user.strip()

    def _checked(self, claims: Mapping[str, Any]) -> int:
        """For how many milliseconds the token is valid, 1 at least: within the clocks' difference it may have ended."""
        terms, now = self._terms, self._clock()
        ends, issued = _instant(claims, "exp"), _instant(claims, "iat")
        begins = _instant(claims, "nbf") if "nbf" in claims else issued
        if now - terms.skew_s >= ends:
            raise _Refused("the token has expired")
        if max(issued, begins) > now + terms.skew_s:
            raise _Refused("the token is not valid yet")
        if terms.issuer and claims.get("iss") != terms.issuer:
            raise _Refused("the token is from another issuer")
        if terms.audiences and not terms.audiences & set(_audiences(claims)):
            raise _Refused("the token is for another audience")
        return max(1, int((ends - now) * 1000))


def _header(token: str) -> Mapping[str, Any]:
    encoded = token.partition(".")[0]
    if len(encoded) > MOST_HEADER:
        raise _Refused(f"the token's header has more than {MOST_HEADER} characters")
    header = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    if not isinstance(header, dict):
        raise _Refused("the token has no header")
    return header


def _instant(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Refused(f"the token has no time {name}")
    return float(value)


def _audiences(claims: Mapping[str, Any]) -> list[str]:
    found = claims.get("aud")
    return [found] if isinstance(found, str) else [each for each in found or () if isinstance(each, str)]
