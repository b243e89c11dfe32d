"""Verify: is the downstream equal to the upstream, while both are written to?"""
