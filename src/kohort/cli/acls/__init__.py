"""`kohort acls`.

app    list, add, remove and check
texts  principals, operations, resources and ACLs as words
check  which rule decides, by the server's own authorizer
"""
