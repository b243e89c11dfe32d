"""Kinds of worlds: who uses the Pumps."""
