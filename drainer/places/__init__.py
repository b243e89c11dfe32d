"""Places: where a user says that data is or goes, one type for all: a path, `file://`, `s3://`, `gs://`, `hdfs://`.

Out    reading, listing, writing; a `ConfigError` where that cannot be done there, before anything is written
"""
