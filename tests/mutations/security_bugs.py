"""Known bugs of the client's TLS and SASL; test_mutations.py plants them."""

from __future__ import annotations

from planting import bug

SCRAM, TLS, EXCHANGE = "client/security/scram.py", "client/security/tls.py", "client/wire/exchange.py"
BLOCKING = "client/wire/blocking_connection.py"
ASYNCIO = "client/wire/async_connection.py"
ROUTING = "client/wire/routing.py"
SCRAM_TEST = "tests/client_library/security/test_scram.py::"
WIRE_TEST = "tests/client_library/security/test_secured_connections.py::"
PROPERTIES_TEST = "tests/client_library/security/test_security_properties.py::"

SECURITY_BUGS = {
    "a broker that does not know the password is accepted": bug(
        (f"{WIRE_TEST}test_a_false_broker",),
        (SCRAM, "if not hmac.compare_digest(", "if False and not hmac.compare_digest("),
    ),
    "the nonce of another exchange is accepted": bug(
        (f"{SCRAM_TEST}test_bad_challenges",),
        (SCRAM, "if not server_nonce.startswith(nonce) or server_nonce == nonce:", "if False:"),
    ),
    "a challenge with too few iterations is answered": bug(
        (f"{SCRAM_TEST}test_bad_challenges",),
        (SCRAM, "if not MIN_ITERATIONS <= int(count) <= MAX_ITERATIONS:", "if False:"),
    ),
    "a certificate of another host is accepted": bug(
        (f"{WIRE_TEST}test_certificates_that_are_refused", f"{PROPERTIES_TEST}test_levels_of_certificate_verification"),
        (TLS, "= tls.verify and tls.verify_host", "= False"),
    ),
    "the system's authorities are trusted besides the given ones": bug(
        (f"{PROPERTIES_TEST}test_trust_and_key_in_every_notation",),
        (TLS, "_trust(context, tls)", "context.load_default_certs()\n    _trust(context, tls)"),
    ),
    "the password is sent although the mechanism was refused": bug(
        (f"{WIRE_TEST}test_a_mechanism_that_is_not_offered",),
        (EXCHANGE, "answer.error_code:\n            code =", "False:\n            code ="),
    ),
    "a blocking connection does not authenticate again": bug(
        (f"{WIRE_TEST}test_a_blocking_connection_authenticates_again_in_time",),
        (BLOCKING, "if self._renew_at is None or self._pending", "if True or self._pending"),
    ),
    "an asyncio connection does not authenticate again": bug(
        (f"{WIRE_TEST}test_an_asyncio_connection_authenticates_again_in_time",),
        (ASYNCIO, "self._renew_at is not None and self._renewing is", "False and self._renewing is"),
    ),
    "requests are sent between the messages of a repeated authentication": bug(
        (f"{WIRE_TEST}test_an_asyncio_connection_authenticates_again_in_time",),
        (ASYNCIO, "self._renewing is None:\n            return", "True:\n            return"),
    ),
}
