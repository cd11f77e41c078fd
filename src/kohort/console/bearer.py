"""A bearer token, as a user gives it at the login: who its user is, and when it expires.

Only the cluster can say whether a token is genuine. Until it has, the claims are what anybody may have written.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import NamedTuple

LONGEST = 16_384
"""Characters."""
LATEST_S = 1e12
"""A later time is none. A JSON number may be larger than any float."""
NO_TOKEN = "This is no bearer token: a JSON web token has three parts with dots between them."


class Claims(NamedTuple):
    user: str
    expires_s: float
    """Seconds since 1970."""


def claims_of(token: str, user_claim: str) -> Claims:
    """Raises ValueError, whose text has nothing of the token."""
    if len(token) > LONGEST:
        raise ValueError(f"The token is too long: the console takes {LONGEST:,} characters.")
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        raise ValueError(NO_TOKEN) from None
    if not isinstance(claims, dict):
        raise ValueError(NO_TOKEN)
    user, expires_s = claims.get(user_claim), claims.get("exp")
    if not isinstance(user, str) or not user or not user.isprintable():
        raise ValueError(f"The token names no user: it has no claim {user_claim}.")
    if isinstance(expires_s, bool) or not isinstance(expires_s, int | float) or not abs(expires_s) < LATEST_S:
        raise ValueError("The token does not say when it expires: it has no claim exp.")
    return Claims(user, float(expires_s))
