"""The table of settings, its first part: where the server listens, TLS and SASL."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.config.declaration import INT_MAX, LONG_MAX
from kohort.config.declaration import setting as _setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """The settings of `Config` that a listener has."""

    # -- where it listens and keeps its data
    listeners: str = _setting(
        "127.0.0.1:9092",
        "HOST:PORT of each broker, comma separated; port 0 picks a free one. A single one for several brokers stands "
        "for consecutive ports. NAME://HOST:PORT gives a broker several listeners, each with a name",
    )
    listener_security_protocol_map: str = _setting(
        "",
        "NAME:PROTOCOL of each listener, comma separated; a listener whose name is a protocol has that protocol",
    )
    advertised_listeners: str = _setting(
        "",
        "HOST:PORT that clients get, one per broker; HOST alone keeps the listener's port. Empty: the listeners. "
        "With NAME://HOST:PORT, the clients of each listener get the addresses of that listener",
    )
    allow_insecure_listeners: bool = _setting(
        False, "Listen without TLS and SASL on addresses that other machines reach"
    )

    # -- TLS; listener.name.NAME. before the name of a setting sets it for that listener alone
    ssl_keystore_location: str = _setting("", "File of the server's certificate, its chain and key: PEM or PKCS12")
    ssl_keystore_type: str = _setting("", "Read without effect: the file's first bytes say whether it is PEM or PKCS12")
    ssl_keystore_password: str = _setting("", "Password of the PKCS12 file, or of the key in a PEM file", secret=True)
    ssl_key_password: str = _setting("", "Password of the key, if it is not that of the key store", secret=True)
    ssl_keystore_certificate_chain: str = _setting("", "The certificate and its chain as PEM text, instead of a file")
    ssl_keystore_key: str = _setting("", "The key as PEM text, beside ssl.keystore.certificate.chain", secret=True)
    ssl_truststore_location: str = _setting("", "File of the authorities that sign clients' certificates")
    ssl_truststore_type: str = _setting("", "Read without effect, as ssl.keystore.type")
    ssl_truststore_password: str = _setting("", "Password of a PKCS12 file of authorities", secret=True)
    ssl_truststore_certificates: str = _setting("", "The authorities as PEM text, instead of a file")
    ssl_client_auth: str = _setting(
        "none",
        "Whether clients need a certificate; it names the principal of a client without SASL",
        one_of=("none", "requested", "required"),
    )
    ssl_enabled_protocols: str = _setting("TLSv1.2,TLSv1.3", "Versions of TLS, comma separated")
    ssl_principal_mapping_rules: str = _setting(
        "DEFAULT",
        "RULE:PATTERN/REPLACEMENT/[L|U] and DEFAULT, comma separated: the first pattern that matches the whole name of "
        "a client's certificate makes it the principal's name",
    )
    ssl_allow_dn_changes: bool = _setting(False, "A renewed certificate may have another subject")
    ssl_allow_san_changes: bool = _setting(False, "A renewed certificate may lack alternative names of the former one")
    ssl_handshake_timeout_ms: int = _setting(10_000, "Longest time of a TLS handshake", low=1, high=INT_MAX)

    # -- SASL; these settings, too, may be set for a single listener
    sasl_enabled_mechanisms: str = _setting(
        "SCRAM-SHA-512",
        "Mechanisms of listeners with SASL, comma separated: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. SCRAM's "
        "users are made by `kohort users add`; PLAIN knows them too, and those of "
        "listener.name.NAME.plain.sasl.jaas.config; OAUTHBEARER needs the settings sasl.oauthbearer.*",
    )
    sasl_server_max_receive_size: int = _setting(
        524_288, "Largest request of a client that has not authenticated", low=1_024, high=16_777_216
    )
    sasl_authentication_timeout_ms: int = _setting(
        10_000, "Longest time from the connection to the authentication", low=1, high=INT_MAX
    )
    connections_max_reauth_ms: int = _setting(
        0,
        "A client must authenticate again within this time; then its requests close its connection. 0: never. Also for "
        "one mechanism: listener.name.NAME.MECHANISM.connections.max.reauth.ms",
        low=0,
        high=LONG_MAX,
    )
    connection_failed_authentication_delay_ms: int = _setting(
        100, "The answer to a failed authentication is delayed by this time", low=0, high=10_000
    )
    # -- SASL OAUTHBEARER; for one listener: listener.name.NAME.oauthbearer. before the name
    sasl_oauthbearer_jwks_endpoint_url: str = _setting(
        "", "https:// or file:/// address of the keys (a JSON Web Key Set) that sign tokens"
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _setting(
        3_600_000, "The keys are read again after this time", low=1_000, high=INT_MAX
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _setting(
        100, "Pause before the keys are asked for again after a failure; it doubles", low=1, high=INT_MAX
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _setting(
        10_000, "The longest such pause", low=1, high=INT_MAX
    )
    sasl_oauthbearer_expected_audience: str = _setting(
        "", "A token must be for one of these audiences, comma separated"
    )
    sasl_oauthbearer_expected_issuer: str = _setting("", "A token must be from this issuer")
    sasl_oauthbearer_allow_unverified_audience: bool = _setting(False, "Accept tokens for any audience")
    sasl_oauthbearer_allow_unverified_issuer: bool = _setting(False, "Accept tokens of any issuer with one of the keys")
    sasl_oauthbearer_clock_skew_seconds: int = _setting(
        30, "How far the clocks of the issuer and of this server may differ", low=0, high=3_600
    )
    sasl_oauthbearer_sub_claim_name: str = _setting("sub", "The claim of a token that names the user")
