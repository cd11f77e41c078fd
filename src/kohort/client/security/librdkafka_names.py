"""The security settings in librdkafka's (confluent-kafka's) names.

Certificates and keys are passed as text, whatever kind of file they are from. Tokens that librdkafka cannot get by
itself come from `oauth_cb`, which it calls when a token is about to expire.
"""

from __future__ import annotations

import base64
import json
import os
import time
from typing import Any

from kohort.client.security.bearer_tokens import DEFAULT_LIFE_S, Oidc
from kohort.client.security.sasl import OAuthBearer, Sasl
from kohort.client.security.tls import Tls
from kohort.security.keystores import pem_of

TOKEN_TIMEOUT_MS = 30_000


def librdkafka_tls(tls: Tls) -> dict[str, Any]:
    """Raises ValueError if a file cannot be read, or if librdkafka cannot do what the settings require.

    librdkafka has no setting for TLS versions and accepts TLS 1.2 and 1.3, so that a stricter choice is refused.
    """
    if tls.oldest == "TLSv1.3":
        raise ValueError("ssl.enabled.protocols: librdkafka has no setting that would refuse TLSv1.2")
    settings: dict[str, Any] = {
        "enable.ssl.certificate.verification": tls.verify,
        "ssl.endpoint.identification.algorithm": "https" if tls.verify and tls.verify_host else "none",
    }
    if tls.trust_pem is not None:
        settings["ssl.ca.pem"] = tls.trust_pem
    elif tls.trust is not None and os.path.isdir(tls.trust):
        settings["ssl.ca.location"] = tls.trust
    elif tls.trust is not None:
        settings["ssl.ca.pem"] = pem_of(tls.trust, tls.trust_password, tls.trust_name)
    certificate = tls.certificate_pem
    if tls.certificate is not None:
        certificate = pem_of(tls.certificate, tls.store_password, tls.certificate_name)
    if certificate is not None:
        settings["ssl.certificate.pem"] = certificate
        key = tls.key_pem if tls.key is None else pem_of(tls.key, None, "ssl.key.location")
        settings["ssl.key.pem"] = certificate if key is None else key
        password = tls.key_password if tls.key_password is not None else tls.store_password
        if password is not None:
            settings["ssl.key.password"] = password
    return settings


def librdkafka_sasl(sasl: Sasl) -> dict[str, Any]:
    settings: dict[str, Any] = {"sasl.mechanism": sasl.mechanism}
    if not isinstance(sasl, OAuthBearer):
        return settings | {"sasl.username": sasl.username, "sasl.password": sasl.password}
    if not isinstance(sasl.source, Oidc):

        def token(_: str) -> tuple[str, float, str, dict[str, str]]:
            """For confluent-kafka: returns token, expiry (seconds since 1970), principal, extensions."""
            value = sasl.source.token(TOKEN_TIMEOUT_MS)
            return value, _ends(value), "", dict(sasl.extensions)

        return settings | {"oauth_cb": token}
    settings |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": sasl.source.url,
        "sasl.oauthbearer.client.id": sasl.source.client_id,
        "sasl.oauthbearer.client.secret": sasl.source.client_secret,
    }
    if sasl.source.scope:
        settings["sasl.oauthbearer.scope"] = sasl.source.scope
    if sasl.source.ca_location is not None:
        settings["https.ca.location"] = sasl.source.ca_location
    if sasl.extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(f"{name}={value}" for name, value in sasl.extensions)
    return settings


def _ends(token: str) -> float:
    """When a JSON web token expires; for any other token, a guess that makes librdkafka ask again soon."""
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return time.time() + DEFAULT_LIFE_S
