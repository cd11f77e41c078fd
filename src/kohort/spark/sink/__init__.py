"""`format("kohort")` for writing: librdkafka's producer in the executors' Python workers, or transactions.

data_sink           the writers that Spark creates; a task's producer
rows                which columns count, and rows as records
key_hashes          the hashes of a column of keys
failures            why a task or a batch could not be written
transactional_task  a task of a sink that writes each row exactly once
batch_commit        the driver commits the transactions of a batch
ledger              which batches are written
"""
