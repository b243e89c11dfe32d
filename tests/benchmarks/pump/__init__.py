"""Benchmarks of a pump: writes, pulls, start, index, memory."""
