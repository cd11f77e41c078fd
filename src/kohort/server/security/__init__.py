"""TLS and SASL, the server's side.

certificates  the TLS of all listeners, renewed while the server runs
contexts      a listener's TLS context, built from its settings
conversation  one connection's authentication, without IO
door          the connections that have not finished TLS and SASL: their number, time and bytes
entrance      what a new connection meets before `Connection`
keys          the public keys that sign tokens
login         SASL on a new connection
mechanisms    SASL mechanisms, without IO
principals    the names of clients by their certificates
session       the end of an authentication, and its renewal
tokens        verifies the tokens of OAUTHBEARER
tls_link      TLS between a plain transport and a protocol
"""
