"""Repair: statements that make a downstream equal to its upstream where a comparison found differences."""
