"""Benchmarks of what is asked of an upstream: timestamps, DDL history."""
