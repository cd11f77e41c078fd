"""Migration of all data between a data directory and a database, without a server. Failures are StorageError.

places   a data directory and a database as source and as target
migrate  counts, copies and compares; what cannot be taken along
"""
