"""Benchmarks of Spark on an archive."""
