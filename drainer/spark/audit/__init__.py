"""Audit of an archive: is it whole, does each row's history hang together, does a database equal it."""
