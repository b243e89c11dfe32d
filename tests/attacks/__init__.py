"""Hostile HTTP/2 and gRPC clients: what a listening port has to bear, or to end.

`tests.attacks.catalog.ATTACKS` has them by name; each takes a `Target`, a time and a number of frames and
tells what the server did (`Outcome`).
"""
