"""The memory of the server's process.

process    it is measured: freed memory is returned, and requests and answers get less room
collector  the garbage collector: collections are short
"""
