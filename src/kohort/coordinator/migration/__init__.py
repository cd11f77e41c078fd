"""The classic protocol in consumer groups: mixed groups, and groups that change their protocol.

classic_requests   JoinGroup, SyncGroup, Heartbeat and LeaveGroup for a consumer group with members
classic_side       what a consumer group knows of its classic members: common protocols, assignments, rejoins
conversion         carries out upgrades and downgrades
downgrade          the plan of a downgrade, a frozen value
upgrade            the plan of an upgrade, a frozen value
"""
