"""Reading: what programs read changes from, each a package of its own."""
