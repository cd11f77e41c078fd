"""`kohort metrics`: what Prometheus and Grafana take, for the series of docs/metrics.md.

app        the commands
dashboard  a Grafana dashboard
alerts     alert rules of Prometheus
"""
