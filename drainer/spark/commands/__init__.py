"""Commands of `binlog-spark`, one module each: `HELP`, `add_arguments(parser)`, `run(args) -> exit code`."""
