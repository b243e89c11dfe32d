"""Benchmarks: what the project costs, side by side with a limit or a peer measured in the same run.

`python -m tests.benchmarks [names...]` runs them, prints a table and writes `build/bench.json`.
"""
