"""Backup, verification and restore of a data directory; migration to a database and back.

backup   `kohort backup`
verify   `kohort verify`
restore  `kohort restore`
migrate  `kohort migrate`
wording  what these commands say of data
"""
