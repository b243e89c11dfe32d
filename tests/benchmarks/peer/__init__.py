"""The Go programs, measured beside ours: how they are started and what is read from them."""
