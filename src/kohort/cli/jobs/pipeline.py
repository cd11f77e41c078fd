"""The file that spark-submit runs: `kohort pipeline`, in the session that spark-submit has made.

    spark-submit … "$(kohort pipeline job)" ingest --topics orders --to s3a://lake/orders …

spark-submit puts the directory of this file first on the import path. The file is alone in its directory, so no
neighbour hides a module of the same name. It imports only kohort: in cluster mode spark-submit copies only this file to
the driver's machine, and kohort comes from the environment archive.
"""

from __future__ import annotations

import sys

from kohort.cli.commands import app
from kohort.cli.interrupt import interrupts

if __name__ == "__main__":
    interrupts.run(lambda: app(["pipeline", *sys.argv[1:]], prog_name="kohort"))
