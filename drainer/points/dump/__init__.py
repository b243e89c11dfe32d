"""Dump: what the upstream has at one timestamp, as an image.

In     the upstream, a Drainer's rules
Out    an image (`drainer.points.image`), from which an archive goes on
"""
