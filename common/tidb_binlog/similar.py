"""Similar: which of some names was likely meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def similar(name: str, candidates: Iterable[str]) -> str:
    """The nearest candidate, "" if none is near."""
    import difflib  # only who mistypes needs it

    return next(iter(difflib.get_close_matches(name, list(candidates), n=1)), "")
