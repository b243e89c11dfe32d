"""Local: what commands do in this process where no Spark is asked for, with the output that Spark gives."""
