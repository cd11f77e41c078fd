"""The APIs of share groups (KIP-932).

groups           ShareGroupHeartbeat, ShareGroupDescribe
fetch            ShareFetch
acknowledge      ShareAcknowledge, and the acknowledgements in ShareFetch
requests         checks of both, and their sessions
offsets          DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets
states           the APIs of the share coordinator
"""
