"""Archives: what a Drainer or a Pump left in files, without Java."""
