"""TLS and SASL in Kafka's property names.

bearer_tokens      where bearer tokens come from: OIDC, a file, a callable
librdkafka_names   the same settings for librdkafka
properties         property names of Java's clients and librdkafka, read into Tls and Sasl
sasl               SASL mechanisms, without IO
scram              SCRAM, the client's side
security           Security: what `security=` takes
tls                TLS contexts, and what a failed handshake means
"""
