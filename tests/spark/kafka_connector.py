"""Spark's own Kafka connector, for the tests (marker java) that run a query on both: copied by Maven.

Its version should be the installed Spark's. A repository that does not have that one may have another: 4.2.0 runs on
Spark 4.3. Older versions do not work, because classes that a streaming query needs have moved since.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import java_libraries
import pyspark

ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
POM = Path(__file__).with_name("pom.xml")


def jars() -> list[Path]:
    """The connector's, without what Spark has itself. Raises RuntimeError where Maven cannot get them."""
    return sorted(java_libraries.kept("spark-connector", [POM], _fetch, pyspark.__version__).glob("*.jar"))


def _fetch(folder: Path) -> None:
    said = ""
    for profile in ("installed", "pinned"):
        command = ["mvn", "-q", "-B", "-f", str(POM), "-P", profile, f"-Dspark={pyspark.__version__}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        command += [f"-DincludeArtifactIds={','.join(ARTIFACTS)}"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
        if ran.returncode == 0:
            return
        said += ran.stdout
    raise RuntimeError(said)
