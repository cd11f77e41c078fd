"""Settings that clients can change with configs of resources.

config_keys     what is known of a config of a topic or a group; typed values from their text
group_settings  the settings in force for one group: the server's and its own
"""
