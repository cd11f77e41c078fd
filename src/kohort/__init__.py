"""kohort: Kafka's consumer groups for Python and Spark, without a JVM. ARCHITECTURE.md describes the packages.

config/       every limit and default
wire/         the Kafka protocol
coordinator/  the groups
storage/      logs in SQLite or in memory
broker/       requests, turns, topics
server/       the process around the broker
client/       a client for any Kafka cluster
spark/        a data source and pipelines
simulator/    the server in a world of virtual time and faults
cli/          the commands
testing/      a server in a test
demo/         `kohort demo`
properties    a reader of .properties files
compiled      which modules run compiled, and the finder that loads them
__main__      `python -m kohort`
"""

__version__ = "0.1.0"

from kohort import compiled

compiled.use_what_there_is()
