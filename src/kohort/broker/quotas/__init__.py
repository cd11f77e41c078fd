"""Client quotas: what clients may use of a broker, and how those above it are slowed down (KIP-13, 124, 219, 599, 612).

entities    entities, the keys of quotas, and all quotas of the metadata log, found by user and client
rates       the rate over the last seconds, and the bucket of tokens
meters      what each client has used, as far as a quota is about it
mutations   topics that are created, grown and deleted
throttling  answers with a throttle time, and muted connections
"""
