"""What a streaming query tells about itself: its lag, its rows and its times, in the log and for Prometheus.

progress   the facts of one progress report, and its line in the log: pure functions
listener   what Spark calls; the metrics
"""
