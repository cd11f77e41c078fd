"""Registers the `kohort` format with Spark."""
