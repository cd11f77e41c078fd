"""Benchmarks: `python -m bench [SUBJECT...]`. Each subject is a module here with a `SUBJECT`."""
