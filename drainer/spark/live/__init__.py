"""Live: what Pumps have goes downstream by Spark, batch by batch, each change once."""
