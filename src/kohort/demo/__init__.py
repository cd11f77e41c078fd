"""`kohort demo`: the main job end to end, on real records.

story           the chapters in order
flights         the records: 336,776 flights
living          `--console`: groups that live on, and the console
server_process  `kohort serve` and `kohort console` as children
workers         the workers' processes
worker          one of these processes: a plain confluent-kafka consumer
ledger          what the workers have read and committed
handover        kills a worker and watches the others take over
lake            the Spark side
screen          output
"""
