"""The PostgreSQL engine (experimental): one statement a turn, fenced by a counter in the node's row.

engine         `PostgresStorage`: one node's part of the data
io_thread      the event loop on which all connections live, in a thread
connections    connects, and refuses databases that lose what they acknowledge
leases         which process is a node, which node owns the data, and who takes over
slot_table     nodes that serve at once: who owns which slots, takeovers, moves
ask_table      requests that nodes pass on to the controller, and their answers
schema         the tables and the functions of a commit
tables         creates the tables, and judges those that are there
unserved       a database that no node serves: source or target of a migration
reads          the reads of `Storage`, from memory and with a reader
batch_index    what the engine keeps in memory of a log: all about its batches but their data
changes        the operations of a commit as rows, and what they do to the index
loading        reads the tables of logs and batches at the start
writer         commits turns; finds out whether a commit happened whose answer is lost
reader         reads of batches: their data comes from the database, where they are is in memory
report         what the tables say of the nodes, and drains and moves: for administrators
purge          deletes the rows of trimmed and deleted logs, some at a time
"""
