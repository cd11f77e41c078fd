"""A server whose data is in a database.

node      this process as a node of the database: its storage, and the other nodes as the broker gets them
errands   requests between this node and the controller
log_ends  where logs end: what this node says of its own, and learns of others
sharing   this process among nodes that serve at once: what it reads of them, for the broker
"""
