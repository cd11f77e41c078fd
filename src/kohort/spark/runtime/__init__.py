"""The software that Spark needs on this machine.

java       finds a Java
session    a local session, and the registration of the data source
compiled   functions compiled by numba
failures   the cause in the message of a failed job; warnings
"""
