"""A server whose data is in a database.

node    this process as a node of the database: its storage, and the other nodes as the broker gets them
"""
