"""Safe mode: which transactions may be downstream already; their rows are written in repeatable forms.

Out    for a commit_ts: whether its rows may be downstream already

    the checkpoint was written last by   and                             may be downstream up to
    no program: the first start          -                               0: nothing is
    this drainer                         `safe-until` is stored          `safe-until`
    this drainer                         `safe-until` is not stored      0: lanes know what they applied
    another program, a Go drainer, say   -                               the timestamp drawn at the start
    any                                  recovery from the relay log     the end of the relay log at most
    any                                  `syncer.safe-mode` is set       every commit_ts

Ends   with the first batch that begins above `until_ts`; no clock is involved, and a restart does not prolong
       it. `safe-until` is stored while transactions to come are covered: until the checkpoint reaches it
Why    lanes commit their position with their rows, so what this drainer applied never comes again. Of what
       another program wrote only its checkpoint is known, and it may have applied more
Never  asked of single rows: a batch is written in repeatable forms as a whole if its first row is covered
"""

from __future__ import annotations

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class SafeMode:
    """Rows with a commit_ts up to `until_ts` may be downstream already; `always`: rows of any commit_ts."""

    until_ts: Ts = 0
    always: bool = False

    @classmethod
    def at_start(cls, stored_ts: Ts, now_ts: Ts, *, foreign: bool) -> SafeMode:
        """`stored_ts`: `safe-until` of the checkpoint, 0 without one. `foreign`: another program wrote it."""
        return cls(now_ts if foreign else stored_ts)

    def covers(self, commit_ts: Ts) -> bool:
        """Whether rows of that transaction, or what its DDL does, may be downstream already."""
        return self.always or commit_ts <= self.until_ts

    def until(self, last_ts: Ts) -> SafeMode:
        """The same where no transaction above `last_ts` can be downstream."""
        return SafeMode(min(self.until_ts, last_ts), self.always)

    def if_set(self, *, always: bool) -> SafeMode:
        """With the configuration's `safe-mode`. That is not stored, `until_ts` is: setting it and taking
        it back loses nothing."""
        return SafeMode(self.until_ts, always)
