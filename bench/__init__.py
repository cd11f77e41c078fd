"""Benchmarks: `python -m bench [name...]`. Each is a module here with a `main()`."""
