"""Rows of the upstream's tables at one timestamp, as binlogs would have them."""
