"""Kafka's security properties, read into what a connection needs: Java's names and librdkafka's.

Each property is read once; a property that is left at the end is unknown and refused by name. Messages repeat only
values that are certainly no secrets (a protocol, a flag, a path); of other properties they have the name alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kohort.client.security.bearer_tokens import Oidc, Provided, TokenFile, TokenSource, Unsecured
from kohort.client.security.sasl import OAuthBearer, Plain, Sasl, Scram
from kohort.client.security.scram import MECHANISMS
from kohort.client.security.tls import Tls
from kohort.security.jaas import parse_jaas

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

PREFIXES = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "https.ca.")
"""The prefixes of security properties."""

WITHOUT_EFFECT = frozenset(
    {
        "ssl.truststore.type",  # the type is read from the file's contents
        "ssl.keystore.type",
        "ssl.provider",
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "sasl.kerberos.service.name",
        "sasl.kerberos.kinit.cmd",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        "enable.sasl.oauthbearer.unsecure.jwt",
    }
)
"""Properties of other clients that do not affect trust; they are accepted and ignored."""

OAUTH_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
"""The supported values of Java's `sasl.login.callback.handler.class`."""

JAAS_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(MECHANISMS),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
OF_TOKENS = "unsecuredLoginStringClaim_"

CREDENTIALS = (
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.config",
)
"""Properties that only SASL uses. Java's clients ignore them if the protocol has no SASL."""


class Reading:
    """Reads properties one after the other; those that are left at the end are unknown."""

    def __init__(self, properties: Mapping[str, str], token_provider: Callable[[], str] | None) -> None:
        for name, value in properties.items():
            if not isinstance(value, str):
                raise ValueError(f"{name}: expected text, not {type(value).__name__}")
        self._names = sorted(properties)
        self._rest = dict(properties)
        self._token_provider = token_provider

    def result(self) -> tuple[str, Tls | None, Sasl | None]:
        """Protocol, TLS and SASL. Raises ValueError."""
        explicit = self._take("security.protocol")
        protocol = (explicit or "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol is {explicit!r}; it takes {', '.join(PROTOCOLS)}")
        given = [name for name in CREDENTIALS if name in self._rest]
        tls, sasl = self._tls(protocol.endswith("SSL")), self._sasl(protocol.startswith("SASL"))
        for name in WITHOUT_EFFECT:
            self._rest.pop(name, None)
        if self._rest:
            raise ValueError(f"not a security setting that kohort's client knows: {', '.join(sorted(self._rest))}")
        if explicit is None and self._names:
            raise ValueError(f"{self._names[0]} is set but security.protocol is not; it takes {', '.join(PROTOCOLS)}")
        if sasl is None and given:
            raise ValueError(
                f"{given[0]} is set, but security.protocol={protocol} has no login, as SASL_SSL and SASL_PLAINTEXT have"
            )
        if self._token_provider is not None and not isinstance(sasl, OAuthBearer):
            raise ValueError("token_provider is set, but not a SASL protocol with sasl.mechanism=OAUTHBEARER")
        return protocol, tls, sasl

    # -- TLS

    def _tls(self, wanted: bool) -> Tls | None:
        trust, trust_name = self._first("ssl.truststore.location", "ssl.ca.location")
        trust_pem, pem_name = self._first("ssl.truststore.certificates", "ssl.ca.pem")
        certificate, certificate_name = self._first("ssl.keystore.location", "ssl.certificate.location")
        certificate_pem, chain_name = self._first("ssl.keystore.certificate.chain", "ssl.certificate.pem")
        oldest, newest = self._versions()
        tls = Tls(
            trust=None if trust == "probe" else trust,  # librdkafka's name for the system's authorities
            trust_pem=trust_pem,
            trust_password=self._take("ssl.truststore.password"),
            trust_name=trust_name if trust is not None else pem_name,
            certificate=certificate,
            certificate_pem=certificate_pem,
            certificate_name=certificate_name if certificate is not None else chain_name,
            key=self._take("ssl.key.location"),
            key_pem=self._first("ssl.keystore.key", "ssl.key.pem")[0],
            key_password=self._take("ssl.key.password"),
            store_password=self._take("ssl.keystore.password"),
            verify=self._flag("enable.ssl.certificate.verification", True),
            verify_host=self._verify_host(),
            oldest=oldest,
            newest=newest,
        )
        if trust is not None and trust_pem is not None:
            raise ValueError(f"{trust_name} and {pem_name} are both set; one of them is enough")
        if certificate is not None and certificate_pem is not None:
            raise ValueError(f"{certificate_name} and {chain_name} are both set; one of them is enough")
        if not wanted:
            return None
        if (tls.key or tls.key_pem) and not (certificate or certificate_pem):
            raise ValueError("a key is set but no certificate: ssl.keystore.certificate.chain is missing")
        tls.context()
        return tls

    def _verify_host(self) -> bool:
        text = self._take("ssl.endpoint.identification.algorithm")
        if text is None or text.strip().lower() == "https":
            return True
        if text.strip().lower() in ("", "none"):
            return False
        raise ValueError(f"ssl.endpoint.identification.algorithm is {text!r}; it takes https, or none for no check")

    def _versions(self) -> tuple[str | None, str | None]:
        known = ("TLSv1.2", "TLSv1.3")
        text, name = self._first("ssl.enabled.protocols")
        single = self._take("ssl.protocol")
        if single is not None and single not in ("TLS", *known):
            raise ValueError(f"ssl.protocol is {single!r}; it takes TLS, {' or '.join(known)}")
        if text is None:
            return None, None
        wanted = [part.strip() for part in text.split(",") if part.strip()]
        usable = [version for version in known if version in wanted]
        if not usable or set(wanted) - {*known, "TLSv1.1", "TLSv1"}:
            raise ValueError(f"{name} is {text!r}; it takes {' and '.join(known)}")
        return usable[0], usable[-1]

    # -- SASL

    def _sasl(self, wanted: bool) -> Sasl | None:
        mechanism, name = self._first("sasl.mechanism", "sasl.mechanisms")
        jaas = self._take("sasl.jaas.config")
        module = None if jaas is None else parse_jaas(jaas)
        options = {} if module is None else dict(module.options)
        username = self._one_of(self._take("sasl.username"), options.pop("username", None), "sasl.username")
        password = self._one_of(self._take("sasl.password"), options.pop("password", None), "sasl.password")
        bearer = self._bearer(options, wanted and mechanism == "OAUTHBEARER")
        if not wanted:
            return None
        if mechanism is None:
            raise ValueError("sasl.mechanism is missing: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
        if mechanism not in ("PLAIN", "OAUTHBEARER", *MECHANISMS):
            hint = "; Kerberos takes a client of Java or librdkafka" if mechanism == "GSSAPI" else ""
            raise ValueError(
                f"{name} is {mechanism!r}; it takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER{hint}"
            )
        if module is not None and mechanism not in JAAS_MODULES.get(module.name, ()):
            raise ValueError(f"sasl.jaas.config names {module.name}, which does not fit {name}={mechanism}")
        if options:
            raise ValueError(
                f"sasl.jaas.config: kohort's client does not know the options {', '.join(sorted(options))}"
            )
        if bearer is not None:
            return bearer
        for value, missing in ((username, "sasl.username"), (password, "sasl.password")):
            if value is None:
                raise ValueError(f"{missing} is missing (or sasl.jaas.config with it)")
        assert username is not None
        assert password is not None
        if "\0" in username + password:
            raise ValueError("sasl.username and sasl.password may not contain NUL characters")
        return Plain(username, password) if mechanism == "PLAIN" else Scram(mechanism, username, password)

    def _bearer(self, options: dict[str, str], wanted: bool) -> OAuthBearer | None:
        """Reads all properties about tokens; None if another mechanism is meant."""
        handler = self._take("sasl.login.callback.handler.class")
        if handler is not None and handler.rpartition(".")[2] not in OAUTH_HANDLERS:
            raise ValueError("sasl.login.callback.handler.class: classes of your own take a token_provider instead")
        method = (self._take("sasl.oauthbearer.method") or "default").lower()
        if method not in ("default", "oidc"):
            raise ValueError(f"sasl.oauthbearer.method is {method!r}; it takes default or oidc")
        url = self._take("sasl.oauthbearer.token.endpoint.url")
        ca_location = self._take("https.ca.location")
        client_id = self._one_of(
            self._first("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")[0],
            options.pop("clientId", None),
            "sasl.oauthbearer.client.id",
        )
        client_secret = self._one_of(
            self._first("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")[0],
            options.pop("clientSecret", None),
            "sasl.oauthbearer.client.secret",
        )
        scope = self._one_of(self._take("sasl.oauthbearer.scope"), options.pop("scope", None), "sasl.oauthbearer.scope")
        extensions = self._extensions(options)
        unsecured = self._unsecured(options)
        if not wanted:
            return None
        oidc = None if url is None else Oidc(url, client_id or "", client_secret or "", scope or "", ca_location)
        return OAuthBearer(self._source(oidc, unsecured), tuple(sorted(extensions.items())))

    def _source(self, oidc: Oidc | None, unsecured: Unsecured | None) -> TokenSource:
        if self._token_provider is not None:
            return Provided(self._token_provider)
        if oidc is not None:
            if oidc.url.startswith("file:"):
                return TokenFile("/" + oidc.url.removeprefix("file:").lstrip("/"))
            if not oidc.url.startswith(("https://", "http://")):
                raise ValueError("sasl.oauthbearer.token.endpoint.url is not an http, https or file URL")
            if not oidc.client_id or not oidc.client_secret:
                raise ValueError("sasl.oauthbearer.client.id or sasl.oauthbearer.client.secret is missing")
            return oidc
        if unsecured is not None:
            return unsecured
        raise ValueError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, a token_provider, or for tests "
            f'sasl.jaas.config with {OF_TOKENS}sub="NAME"'
        )

    def _extensions(self, options: dict[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in list(options):
            for prefix in ("extension_", "unsecuredLoginExtension_"):
                if name.startswith(prefix):
                    found[name.removeprefix(prefix)] = options.pop(name)
        for pair in filter(None, (self._take("sasl.oauthbearer.extensions") or "").split(",")):
            name, equals, value = pair.strip().partition("=")
            if not equals:
                raise ValueError("sasl.oauthbearer.extensions: expected NAME=VALUE,NAME=VALUE")
            found[name] = value
        for name, value in found.items():
            if not name.isascii() or not name.isalpha() or name == "auth" or not value.isprintable():
                raise ValueError(f"the OAUTHBEARER extension {name!r} cannot be: names are letters, values printable")
        return found

    def _unsecured(self, options: dict[str, str]) -> Unsecured | None:
        """The unsecured token of Java's login module, or of librdkafka's `sasl.oauthbearer.config`."""
        words = (self._take("sasl.oauthbearer.config") or "").split()
        config = dict(word.partition("=")[::2] for word in words)
        claim = options.pop("unsecuredLoginPrincipalClaimName", None) or config.pop("principalClaimName", None) or "sub"
        principal = options.pop(OF_TOKENS + claim, None) or config.pop("principal", None)
        scope = options.pop("unsecuredLoginListClaim_scope", None) or config.pop("scope", None) or ""
        life = options.pop("unsecuredLoginLifetimeSeconds", None) or config.pop("lifeSeconds", None) or "3600"
        if config:
            raise ValueError(f"sasl.oauthbearer.config: unknown {', '.join(sorted(config))}")
        if principal is None:
            return None
        if not life.isdecimal() or int(life) < 1:
            raise ValueError("the life of an unsecured token is not a number of seconds")
        return Unsecured(
            principal, claim, tuple(part for part in scope.replace("|", ",").split(",") if part), int(life)
        )

    # -- values

    def _take(self, name: str) -> str | None:
        return self._rest.pop(name, None)

    def _first(self, *names: str) -> tuple[str | None, str]:
        """The value of the property that is set, and its name."""
        found = [(value, name) for name in names if (value := self._take(name)) is not None]
        if len({value for value, _ in found}) > 1:
            raise ValueError(f"{' and '.join(name for _, name in found)} are set and differ")
        return found[0] if found else (None, names[0])

    def _one_of(self, first: str | None, second: str | None, name: str) -> str | None:
        if first is not None and second is not None and first != second:
            raise ValueError(f"{name} is not what sasl.jaas.config says")
        return first if first is not None else second

    def _flag(self, name: str, default: bool) -> bool:
        text = self._take(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise ValueError(f"{name} is {text!r}; it takes true or false")
        return text.strip().lower() == "true"
