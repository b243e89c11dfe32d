"""Archives as tables: a Spark data source over relay logs, file archives and value logs, and its uses."""
