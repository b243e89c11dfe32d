"""A daemon on an event loop that measures itself."""
