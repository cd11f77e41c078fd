"""`kohort console`.

app     from the options to a running console
logins  whether users log in, and how the cluster knows them
tls     the certificate of the console's own listener
"""
