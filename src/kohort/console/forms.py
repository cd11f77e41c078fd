"""Forms that browsers send: read with limits, and only those of the console's own pages.

A page of another site can make a browser send a form here. The guard refuses it by its origin; besides, each form that
changes something has the token of its session, which other sites cannot read.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

LARGEST = 65_536
MOST_FIELDS = 50
SLOWEST_S = 10.0
TYPE = "application/x-www-form-urlencoded"

Form = Mapping[str, str]


async def read_form(request: Request) -> Form:
    """The fields of a form. Raises HTTPException."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != TYPE:
        raise HTTPException(415, f"a form is sent as {TYPE}")
    body = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST:
                    raise HTTPException(413, f"the form has more than {LARGEST} bytes")
    except TimeoutError:
        raise HTTPException(408, "the form did not arrive in time") from None
    except ClientDisconnect:
        raise HTTPException(400, "the form did not arrive") from None
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
        )
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None


def new_token() -> str:
    return secrets.token_urlsafe(32)


def check_token(form: Form, token: str) -> None:
    """Raises HTTPException unless the form has the token of its session."""
    if not secrets.compare_digest(form.get("token", "").encode(), token.encode()):
        raise HTTPException(403, "the form is of another session: load its page again. Nothing was changed")
