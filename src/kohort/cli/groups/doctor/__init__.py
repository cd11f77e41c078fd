"""`kohort groups doctor`.

app         the command: two surveys, the findings, the exit code
case        what the rules look at: a group in two surveys; a finding
collection  everything that the cases need, in few requests
offsets     rules about committed offsets: deserted, stuck, behind, out of range, about to expire
members     rules about members: assignments, subscriptions, protocols
stories     rules about kohort's journal: members removed again and again, storms, waits
"""
