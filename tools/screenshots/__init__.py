"""Screenshots of the pages that docs show: `python -m tools.screenshots`, or `make screenshots`."""
