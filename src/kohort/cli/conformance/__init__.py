"""`kohort conformance`.

app  the command
"""
