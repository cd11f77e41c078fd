"""kill -9 at random moments: all acknowledged data is there."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from storage_batches import LOG, OWN, own_records

from kohort.storage.sqlite import SqliteStorage

CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage_batches import LOG, OWN, commit, make_batch, own_append
from kohort.storage.protocol import Append, CreateLog, Trim
from kohort.storage import sqlite
sqlite.GATHERED_BYTES = 2000
storage = sqlite.SqliteStorage(Path(sys.argv[1]))
if storage.log_info(LOG) is None:
    commit(storage, [CreateLog(LOG), CreateLog(OWN)])
end = storage.log_info(LOG).end_offset
sizes = [100, 3000, 70_000]
while True:
    batches = tuple(make_batch(end + n, size=sizes[(end + n) % 3]) for n in range(1 + end % 5))
    own = [own_append(end, len(batches))]
    if end % 3:
        own += [Append(LOG, batches), Trim(LOG, max(0, end - 500))]
    elif end % 7:
        own += [Append(LOG, batches), Trim(OWN, max(0, end - 700))]
    else:
        own += [Append(LOG, batches)]
    commit(storage, own)
    end += len(batches)
    print(end, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(chance.randint(1, 150)):
            assert child.stdout.readline()
        child.kill()
        rest = child.stdout.read().split()  # acknowledged after the last line that was waited for
        child.wait(timeout=10)
        child.stdout.close()
        with closing(SqliteStorage(tmp_path)) as storage:
            info, own = storage.log_info(LOG), storage.log_info(OWN)
            assert not rest or info.end_offset >= int(rest[-1])
            bases = [batch.base_offset for batch in storage.read(LOG, 0, 1 << 30)]
            assert bases == list(range(info.start_offset, info.end_offset))
            assert info.size == sum(batch.size for batch in storage.batches(LOG))
            assert own.end_offset == info.end_offset
            records = [record.offset for record in own_records(storage)]
            assert records == list(range(records[0], own.end_offset))
            assert records[0] <= max(own.start_offset, 0)
            assert own.size == sum(batch.size for batch in storage.batches(OWN))
