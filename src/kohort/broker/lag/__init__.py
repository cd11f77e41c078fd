"""How far groups are behind: in records, and in the age of the first record that a group has not committed.

lag_times  the ages: the server's times at which logs ended where
told_lag   the lag in an answer to OffsetFetch
"""
