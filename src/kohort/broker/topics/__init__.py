"""Topics, their configurations and partitions.

catalog        topics, configs of groups, producer ids: the fold of the metadata log
topic_store    the operations that change the catalog, and the partitions' logs
topic_configs  topic configurations: names, types, bounds, defaults
"""
