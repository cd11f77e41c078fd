"""`kohort service`.

app   prints the unit
unit  its text
"""
