"""Backup, verification and restore of a data directory.

backup   `kohort backup`
verify   `kohort verify`
restore  `kohort restore`
wording  what the three commands say of data
"""
