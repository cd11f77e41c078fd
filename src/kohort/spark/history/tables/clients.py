"""The client of each member: its name and host stay when it restarts, while its member id changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kohort.spark.history.stories import Client, plain_host
from kohort.spark.history.tables.group_records import GroupRecords

Clients = dict[tuple[int, str], Client]
"""By the group's number, and by the id that events have: the member id; in a classic group the instance id, if any."""


def clients_of(records: GroupRecords) -> Clients:
    lists = records.lists
    rows = np.flatnonzero(np.isin(records.kind[lists.record], (2, 5)))
    members, instances, clients = lists.texts(rows)
    hosts = lists.field("host").take(pa.array(rows)).to_pylist()
    record = lists.record[rows]
    kinds, groups = records.kind[record].tolist(), records.group[record].tolist()
    ids = records.table.column("member_id").take(pa.array(record)).to_pylist()
    found: Clients = {}
    for kind, group, member, instance, client, host, key in zip(
        kinds, groups, members, instances, clients, hosts, ids, strict=True
    ):
        identity = (instance or member) if kind == 2 else key
        found[group, identity] = Client(instance or client or identity, plain_host(host))
    return found
