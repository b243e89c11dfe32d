"""Views: what can be read of an archive."""

from __future__ import annotations

from typing import Final

from drainer.reading.archive.views import changes, ddl, definitions, files, transactions
from drainer.reading.archive.views.view import View

VIEWS: Final[dict[str, View]] = {
    "changes": changes.VIEW,
    "transactions": transactions.VIEW,
    "ddl": ddl.VIEW,
    "files": files.VIEW,
    "definitions": definitions.VIEW,
}
