"""Views: what can be read of an archive."""

from __future__ import annotations

from typing import Final

from drainer.reading.archive.views import changes, summaries
from drainer.reading.archive.views.view import View

VIEWS: Final[dict[str, View]] = {
    "changes": changes.VIEW,
    "transactions": summaries.TRANSACTIONS,
    "ddl": summaries.DDL,
    "files": summaries.FILES,
    "definitions": summaries.DEFINITIONS,
}
