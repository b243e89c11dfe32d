"""Benchmarks of `pumpclient`."""
