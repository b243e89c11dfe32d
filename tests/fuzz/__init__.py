"""Fuzz: decoders of what others may have written are given mutations of what they read, by seed.

    python -m tests.fuzz NAME ... [--seconds 600] [--seed N]

`tests.fuzz.catalog.FUZZERS` has them by name. Each raises nothing but its documented errors, costs CPU and
memory in proportion to its input, and reads again what it has written.
"""
