"""`kohort transactions`.

app           list and describe; registers the other commands
abort         abort a transaction by its id, or a hanging one in its partition
find_hanging  search partitions for transactions that nobody will end
"""
