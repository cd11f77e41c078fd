"""One member of a group, without IO, for each protocol; and the driver that runs it on an event loop.

classic                a member of a classic group
classic_reactions      what error codes make a classic member do
consumer               a member of a consumer group (KIP-848), partition by partition
coordinator_requests   what all share: one request at a time, time-outs, retries, the search for the coordinator
driver                 AsyncMember: carries out what a membership asks for
epoch_member           what `consumer` and `share` have in common: heartbeats with an epoch
share                  a member of a share group (KIP-932)
"""
