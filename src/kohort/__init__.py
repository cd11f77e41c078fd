"""kohort: Kafka's groups, for Python and Spark, without a JVM."""

__version__ = "0.1.0"

from kohort import compiled

compiled.use_what_there_is()
