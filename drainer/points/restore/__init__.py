"""Restore: a database as it was at a commit_ts, from an image or a backup and the archive after it.

In     an image or a database that a backup was put into, an archive, the timestamp
Out    the database; what was compared on the way
"""
