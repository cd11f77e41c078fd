"""`kohort console`.

app  from the options to a running console
"""
