"""The simulated world.

world       the event queue, the virtual clock, random generators, the digest
process     the server's process: start, crash, turns
disk        the fate of each commit
network     connections and their faults
off_loop    the server's work outside of its turns
slow_reads  its reads of records, which end later
"""
