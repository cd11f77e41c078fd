"""Who may do what, as state of the broker: users, ACLs, the decision on a request, and the checks of each API.

acls         an ACL, a filter of ACLs, and all ACLs of the metadata log, found by resource
authorizer   the decision by ACLs, with its cache, and the rule that decides
audit        the lines of the server's log about what was denied and allowed
credentials  the SCRAM credentials of users
listener_keys  the keys of listeners, as far as handlers change them
"""
