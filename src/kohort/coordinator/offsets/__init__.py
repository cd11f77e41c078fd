"""Committed offsets: hard state only.

offsets          commit, fetch, delete, expiry; `_check_commit` decides whether a commit is refused as a whole
ownership_fence  which partitions a commit or a fetch is refused for, by the member that owns them
repeated_commit  a commit that differs from the last one only in its offsets: its records, made in one go
"""
