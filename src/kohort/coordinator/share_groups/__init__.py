"""Share groups (KIP-932): their members, which partitions these read, and which share-partitions have a state.

Members need not give anything up: an assignment says where a member looks for records, and several members may look in
the same partition. So a member gets its target in one step.

    group      hard state: a group, built from its records
    records    its records
    assignor   `simple`, which spreads members over partitions
    checks     why a heartbeat is refused
    heartbeat  ShareGroupHeartbeat, from the request to the answer
    lifecycle  load, topics, settings, deadlines, deletion, unload; offsets that are set or deleted
    responses  answers and descriptions
    states     which share-partitions have a state, and how they get or lose it
    targets    when a target is made
"""
