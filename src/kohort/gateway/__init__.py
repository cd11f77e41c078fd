"""`kohort gateway`: kohort's groups before another Kafka cluster (docs/gateway.md, docs/decisions/0019).

gateway     `Gateway`: the listeners of the upstream cluster's brokers, its state, the links of clients
link        a client's connection, and its own connection to the upstream cluster
owner       the part of the gateway that a link uses
sides       the transport and the protocol of its other two ends
requests    a client's bytes, cut at the requests, and who answers each
answers     the order of the answers
passing     what happens to each answer of the upstream cluster
rewriting   answers that name brokers
metadata    Metadata answers of any size, read a part at a time
versions    the APIs that clients are told of
sasl        a client's login, read as it passes
view        what is known of the upstream cluster, and what has changed
buffers     the bytes of links in memory, and how many each may have
sessions    of members whose heartbeats a link keeps waiting
follower    reads metadata and ends of logs of the upstream cluster, again and again
offsets     copies groups' offsets from the upstream cluster, and back
run         the process
"""
