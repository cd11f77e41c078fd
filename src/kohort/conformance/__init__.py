"""`kohort conformance`: the behaviour on which Kafka's clients rely, asked of any broker.

The answers are compared with those of Apache Kafka 4.3. The package needs nothing of kohort's server: the wire and the
client library alone.

play/       the players: commands as requests on sockets, answers as text
target      the cluster that is asked, and what has to be removed afterwards
files       scenarios and sequences, and the rows that each of them shows
reference   what Apache Kafka answered
run         which files can be played, plays, differences
rows        the rows, and which clients suffer if one is different
table       the outcome, row by row, and as a document
report      the table as text, and as a page
scenarios/  commands with a course in time, which tests of kohort's coordinator play too
sequences/  commands without one, with the answers of Apache Kafka and of kohort
answers/    Apache Kafka's answers to the scenarios, and what a player has to know of their course
"""
