"""Dump: what the upstream has at one timestamp, as an image.

Out    an image (`drainer.points.image`), from which an archive goes on
"""
