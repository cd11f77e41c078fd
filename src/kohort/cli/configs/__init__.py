"""`kohort configs`.

app        describe; registers the other commands
change     set and unset
resources  the resources that have settings, as they are written
words      values and where they come from
"""
