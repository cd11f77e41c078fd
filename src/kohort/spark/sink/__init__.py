"""`format("kohort")` for writing: rows become records, sent by librdkafka's producer.

data_sink   the writers that Spark creates; a task's producer
rows        which columns count, and rows as records
"""
