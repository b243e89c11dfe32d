"""Clusters small enough to see every state of."""

from __future__ import annotations

from typing import Final

from tests.model.joining import Bounds, Left

SMALL: Final = (
    Bounds(1, 2, 1, Left(draws=2)),
    Bounds(1, 1, 1, Left(draws=1, slow=1, leases=1), again=True),
    Bounds(1, 1, 0, Left(draws=1, closes=1, purges=1)),
    Bounds(1, 1, 1, Left(draws=1, deaths=1, purges=1)),
    Bounds(1, 1, 1, Left(draws=2), finds=True),
    Bounds(2, 1, 0, Left(draws=1, slow=1, pages=1)),
)
"""Seconds for all of them."""

LARGE: Final = (
    Bounds(1, 1, 2, Left(draws=2, slow=1), again=True),
    Bounds(2, 1, 1, Left(draws=1, slow=1)),
    Bounds(1, 1, 1, Left(draws=2, slow=1, leases=1), again=True),
    Bounds(1, 2, 0, Left(draws=1, closes=1)),
    Bounds(1, 1, 1, Left(draws=1, closes=1, purges=1)),
    Bounds(1, 1, 1, Left(draws=2, slow=1), finds=True),
)
"""Minutes, and gigabytes."""

WALKED: Final = Bounds(4, 1, 2, Left(draws=8, slow=3, closes=2, starts=2, pages=2), again=True)
"""Too large for that: walks go through it."""
