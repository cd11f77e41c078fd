"""Backup, verification and restore of a data directory. Failures are StorageError; none needs a running server.

backup   copies the database, also while a server uses it
verify   lists what is damaged in a backup or a stopped data directory
restore  makes a data directory of a backup
"""
