"""A client for any Kafka cluster: the base of kohort's commands and of its Spark source."""
