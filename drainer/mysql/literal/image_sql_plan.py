"""SQL plan of rows that are single images in the form of a DELETE, whatever change they came with.

What a fold leaves of a row is one image; statements are made of it as of any other row.

Tests  tests/spark/flashback/test_undo.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from drainer.mysql.literal.keys import Values
from drainer.mysql.literal.plan import SqlPlan
from tidb_binlog.rowcodec.layout import Image


class ImageSqlPlan(SqlPlan):
    """Renders images. They are INSERT, UPDATE and DELETE rows all the same: there is one way to read them."""

    @cached_property
    def insert_literals(self) -> Callable[[bytes], bytes]:
        """`(1,'abc',NULL)`, in the order of `column_list`."""
        strict = self._readers.strict
        return self._readers.of_delete(
            self._stored, self._rendering(), lambda row: self._render(strict.delete(row)), extra=self._names
        )

    @cached_property
    def insert_key(self) -> Callable[[bytes], bytes]:
        return self.delete_key

    @cached_property
    def key_literal_of_insert(self) -> Callable[[bytes], bytes]:
        return self.key_literal_of_delete

    def key_literal_of_update_old(self, row: bytes) -> bytes:
        return self.key_literal_of_delete(row)

    def key_literal_of_update_new(self, row: bytes) -> bytes:
        return self.key_literal_of_delete(row)

    def _image(self, image: Image | str) -> Callable[[bytes], Values]:
        return self._delete_values
