"""What the console asks the cluster, and how often.

snapshot   all groups, topics and brokers, as they were read last
batches    requests about many groups at once
trends     the course of each group's lag
rates      records that each group's topics get, and that it commits, per second
examining  what is wrong with the groups, as `kohort groups doctor` finds it
refresher  the thread that reads the snapshot again and again
questions  requests about one group
users      users, ACLs and quotas
newest     the newest records of a partition
answers    answers that several pages share; the clients that ask
"""
