"""binlogctl: what an operator sees of a cluster and tells it."""
