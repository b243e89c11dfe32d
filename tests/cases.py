"""A table of examples in one test: what fails names its example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*example: object) -> Iterator[None]:
    """Around what is asserted of one of them."""
    try:
        yield
    except Exception as error:
        error.add_note("example: " + ", ".join(map(str, example)))
        raise
