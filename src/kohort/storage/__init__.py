"""Storage engines: logs of record batches, changed by one durable commit a turn.

protocol          `Storage`, the operations of a commit, leases and errors
intact            whether bytes are the batch that its columns describe
slots             the parts of the data that nodes own and hand over, when several serve at once
check             which operations make sense, for all engines
memory            the memory engine, with faults for tests
sqlite            the SQLite engine: commits
sqlite_reads      its reads
sqlite_file       its file: locked, opened, created; what errors mean
sqlite_format     its tables, rows and checksums
sqlite_rows       reads the tables of logs and of batches
sqlite_reader     reads beside the writer, in a thread of its own
sqlite_producers  reads them by producer: last batches, open and aborted transactions
gathered          small appends of many logs as one row a commit, until they move into their logs
checkpoint        a thread: copies the write-ahead log into the database, and watches the files
watched_files     are the files in their place, and which other process locks one
directory         the data directory's lock; finds damage in the write-ahead log
stored_file       a database that is only read: a backup, or a stopped data directory
backup            copies the database, also while a server uses it
seal              the checksum of a whole backup, at its end
copying           copies all logs to another engine, and compares them
postgres/         the PostgreSQL engine (experimental)
restored_directory  a data directory that is made from a backup or a database
"""
