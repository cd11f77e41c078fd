"""Decodes the records of `__consumer_offsets`, of any Kafka cluster, into typed Arrow columns.

decode        `decode`: keys and values to a row of SCHEMA for each record
kernels       the loops over bytes, and the layout of the numbers that they write
compilation   the kernels as plain Python, or compiled by numba
columns       Arrow columns from numbers and places in bytes; commits read with numpy
dumps         Parquet files and broker segments to records of a history
record_files  writes decoded records to the files of a history
"""
