"""Stored data without a server: is it sound, and what a restored directory needs before its first start.

verification  reads everything that is stored, and starts from it as a server does, without a write
raising       raises the numbers that clients may know of a later time than the backup
numbers       leader epochs and producer ids, from the metadata log to tables and back
contents      what the data consists of, in numbers
"""
