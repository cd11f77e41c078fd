"""How far groups are behind: in records, and in the age of the first record that a group has not committed.

lag_times       the ages: the server's times at which logs ended where
commit_windows  the newest commits of a group in a partition, and what Burrow says of them
told_lag        the lag in an answer to OffsetFetch
"""
