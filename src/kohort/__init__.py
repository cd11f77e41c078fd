"""kohort: Kafka's groups, for Python and Spark, without a JVM."""

__version__ = "0.1.0"
