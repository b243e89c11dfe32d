"""Benchmarks of a drainer: rates, lag, memory, archives."""
