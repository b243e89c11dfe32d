"""Views: what can be read of an archive."""

from __future__ import annotations

from typing import Final

from drainer.spark.source.views import changes, ddl, definitions, files, transactions
from drainer.spark.source.views.view import View

VIEWS: Final[dict[str, View]] = {
    "changes": changes.VIEW,
    "transactions": transactions.VIEW,
    "ddl": ddl.VIEW,
    "files": files.VIEW,
    "definitions": definitions.VIEW,
}
