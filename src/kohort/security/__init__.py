"""What clients and the server share of TLS and SASL, without IO but for the files of keys.

certificates  an authority of one's own, for development and tests
jaas          `sasl.jaas.config`
keystores     certificates and keys out of PEM and PKCS12 files
pem_files     keys for Python's ssl module, and its errors
scram         SCRAM: mechanisms, keys, credentials
"""
