"""The file that spark-submit runs: `kohort pipeline`, in the session that spark-submit has made.

    spark-submit … "$(kohort pipeline job)" ingest --topics orders --to s3a://lake/orders …

spark-submit puts the directory of its file in front of the import path. So this file has a directory of its own, in
which no file hides another module. It imports kohort and nothing beside it: in cluster mode it is copied to the
driver's machine alone, and kohort comes by the environment archive.
"""

from __future__ import annotations

from kohort.cli.interrupt import interrupts
from kohort.cli.pipelines.app import app

if __name__ == "__main__":
    interrupts.run(lambda: app(prog_name="kohort pipeline"))
