"""The Kafka wire protocol, without IO: messages, frames, record batches, error codes.

schema         the vocabulary of the schema tables
schemas/       one table an API; a class serves all versions of its message
codec          encodes and decodes any (message, version)
steps          encodes a response with many rows in steps
encoders       writes the source of encoders
decoders       writes the source of decoders
compiler       a function under construction, for both
layout         the layout of a message in one version
explain        finds the field that cannot be encoded
typed          writes the codec for mypyc
typed_values   values of every wire type, for the codec of mypyc
framing        frames out of a byte stream; request and response headers
errors         error codes; ProtocolError
batches        record batches (magic 2): headers, splitting, patching, encoding
records        the records inside a batch
compression    gzip, snappy, lz4 and zstd with bounded output
markers        how a transaction ended on a partition, as a control batch
embedded       consumers' subscriptions and assignments inside opaque bytes
skeleton       bytes that differ only in 64-bit numbers
known_clients  how foreign clients behave
"""
