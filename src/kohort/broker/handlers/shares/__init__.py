"""The APIs of share groups (KIP-932).

groups       ShareGroupHeartbeat, ShareGroupDescribe
fetch        ShareFetch: its session, when it waits, its answer
looking      what a ShareFetch could lock
acknowledge  ShareAcknowledge
requests     checks of fetches and acknowledgements, their sessions, and acknowledgements in both
offsets      DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets
states       the APIs of the share coordinator
"""
