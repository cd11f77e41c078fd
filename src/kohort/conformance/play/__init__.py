"""The players: commands of scenarios and sequences as requests on sockets, and answers as text.

broker           the broker that is asked, and the versions in which it is asked
raw_socket       requests and answers on a plain socket
requests         requests from plain values; topics; waiting
printing         an answer as lines that servers can agree on
commands         the commands of scenarios, as requests of clients that remember their answers
consumer_client  a client of the consumer protocol
hints            what is known of a scenario's course before it is played
profiles         the settings that a scenario counts on, and how fast its time goes
world            a scenario against a server
pulse            how late a machine is
stage            a sequence against a server: groups
administration   commands of sequences that tools send
transactions     commands of sequences about transactions
frames           commands of sequences about the wire itself
transcript       a sequence's file
"""
