"""Restore: a database as it was at a commit_ts, from an image or a backup and the archive after it.

Out    the database; what was compared on the way
"""
