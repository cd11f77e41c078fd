"""Spark's own Kafka connector, for the tests (marker java) that run a query on both: copied by Maven into a folder.

Its version should be the installed Spark's. A repository that does not have that one may have another: 4.2.0 runs on
Spark 4.3. Older ones do not: what a streaming query needs has moved since.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark

ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
POM = Path(__file__).with_name("pom.xml")


def fetch(folder: Path) -> list[Path]:
    """The connector's jars without what Spark has itself. Raises RuntimeError where Maven cannot get them."""
    said = ""
    for profile in ("installed", "pinned"):
        command = ["mvn", "-q", "-B", "-f", str(POM), "-P", profile, f"-Dspark={pyspark.__version__}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        command += [f"-DincludeArtifactIds={','.join(ARTIFACTS)}"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        if ran.returncode == 0:
            return sorted(folder.glob("*.jar"))
        said += ran.stdout
    raise RuntimeError(said)
