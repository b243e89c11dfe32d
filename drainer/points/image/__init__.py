"""Images: tables as they were at one commit_ts, as a directory of Parquet files with a manifest.

Out    what a restore begins with, an audit and a verification compare with, and any reader of Parquet reads
"""
