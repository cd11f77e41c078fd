"""Spark's own Kafka connector, for the tests (marker java) that run a query on both: copied by Maven into a folder.

Its version need not be Spark's: 4.0.0 runs on Spark 4.3.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
POM = Path(__file__).with_name("pom.xml")


def fetch(folder: Path) -> list[Path]:
    """The connector's jars without what Spark has itself. Raises CalledProcessError where Maven cannot get them."""
    subprocess.run(
        [
            *("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"),
            *(f"-DoutputDirectory={folder}", f"-DincludeArtifactIds={','.join(ARTIFACTS)}"),
        ],
        check=True,
        timeout=500,
    )
    return sorted(folder.glob("*.jar"))
