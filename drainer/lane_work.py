"""Lane work: a batch on its way through a lane, and what is known of its attempts. Values only."""

from __future__ import annotations

from drainer.change import Change, Chunk, Position
from drainer.refusal import Refusal
from drainer.statement import Statement


class Work:
    """A batch on its way: what it is made of, and what is known of its attempts."""

    def __init__(self, batch: list[Chunk], changes: list[Change], replaying_up_to: int) -> None:
        self.changes = changes
        self.first_ts = batch[0].first_ts
        self.position: Position = batch[-1].position
        self.replaying = self.first_ts <= replaying_up_to
        self.cut = any(chunk.cut for chunk in batch)
        self.prepared: list[Statement] | None = None
        self.in_doubt = False  # an earlier attempt may have been committed
        self.drift: list[tuple[str, int]] = []
        self.asked: set[str] = set()  # constraints that it broke
        self.refusal: Refusal | None = None  # what it breaks, and nobody takes away

    @property
    def range_text(self) -> str:
        last_ts = self.position.commit_ts
        if self.first_ts == last_ts:
            return f"transaction with commit_ts {last_ts}"
        return f"transactions with commit_ts {self.first_ts} to {last_ts}"
