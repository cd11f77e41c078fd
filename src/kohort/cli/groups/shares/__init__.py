"""Share groups in `kohort groups`.

describing  start offsets, unfinished records, what is in flight, what was archived
targets     which share-partitions a command is about
resetting   reset-offsets
releasing   release: give back what members hold
redelivery  redeliver: finished records again
deleting    delete-offsets
rules       what the doctor finds
"""
