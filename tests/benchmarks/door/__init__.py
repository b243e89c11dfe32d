"""Benchmarks of the door: servers, clients and requests of its own."""
