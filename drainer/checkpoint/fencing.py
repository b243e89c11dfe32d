"""Fencing: which drainer may write downstream for a cluster, decided by epochs.

Out    nothing where this drainer may write, else `Conflict` (another drainer owns the cluster) or `WentBack`
       (the server does not have what it had confirmed)

    stored epoch    means                                                        `check_epoch`
    none            the tables were emptied, or are those from before the start  WentBack
    lower           the server is in a state from before this start              WentBack
    the same        no other drainer has started since                           may write
    higher          a newer drainer has started                                  Conflict

Holds  every start raises the epoch in `drainer_state`, in every lane's row and in the quarantine's entries.
       Every write names its epoch: an UPDATE of a drainer that was replaced matches no row, and the drainer
       ends. So of two drainers only the newer one commits, whatever the older one believes
Order  a start ends the sessions in which an older drainer may hold locks (`mysql/session_lock.py`), raises
       the epoch, and then ends its idle DDL sessions: DDL commits by itself and is guarded by no UPDATE. Who
       reconnects takes the session's lock first and reads the epoch then
Never  replaces a living drainer that has another node id: that is a mistake of configuration. Nor a stream of
       Spark, living or not, which owns the checkpoint until it gives it back. One
       with the same id is replaced, as a standby replaces an active drainer that was frozen or cut off
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from drainer.mysql.rows.change import Position
from tidb_binlog.errors import Conflict
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

SPARK_OWNER: Final = "binlog-spark/"
"""What the owner begins with while a stream of `binlog-spark` works on the checkpoint, its name follows. It
stays after a kill: rows of half a batch may be downstream, and only that stream knows which."""
_HINT: Final = "the drainer resumes from what is stored there; Pumps must still have what comes after it"


class WentBack(Conflict):
    """The downstream does not have what it had confirmed. Only a start from what it has now can continue."""


def next_epoch(last: int, now_ts: Ts) -> int:
    """Never one that any start had before, on whatever server: timestamps are drawn once. A server that went
    back in time would give a mere count a second time."""
    return max(last + 1, now_ts)


def check_owner(cluster_id: int, last_owner: str, owner: str, living: Collection[str]) -> None:
    """Raises `Conflict` if the drainer that started last has another id and is running, or is a stream of
    Spark that did not end between two batches."""
    if last_owner != owner and last_owner.startswith(SPARK_OWNER):
        name = last_owner.removeprefix(SPARK_OWNER)
        raise Conflict(
            f"binlog-spark stream {name} works on the checkpoint of cluster {cluster_id}, or was killed and"
            " left a batch half done",
            hint=f"stop it, or start it once more with `--name {name} --once`: it finishes its batch and"
            " gives the checkpoint back",
        )
    if last_owner and owner and last_owner != owner and last_owner in living:
        raise Conflict(
            f"drainer {last_owner} is running and works on the checkpoint of cluster {cluster_id}, which"
            f" drainer {owner} is to use",
            hint=f"stop {last_owner} first, or give this one its own syncer.to.checkpoint.schema",
        )


@dataclass(frozen=True, slots=True)
class Fence:
    """What this start of a drainer must find on every server that it writes to."""

    cluster_id: int
    epoch: int

    def taken_over(self) -> Conflict:
        """For a write that matched no row of this epoch."""
        return Conflict(
            f"another drainer took over cluster {self.cluster_id} (this one has epoch {self.epoch})",
            hint="stop the other drainer first, or leave this one stopped",
        )

    def went_back(self, why: str) -> WentBack:
        """Makes the error for a downstream that has less than it had."""
        return WentBack(
            f"the downstream went back in time (cluster {self.cluster_id}): {why}. Was a replica promoted"
            " that lagged, or a data directory put back?",
            hint=_HINT,
        )

    def check_epoch(self, stored: int | None) -> None:
        """`stored`: of the server, None if it has none. Epochs only rise, and no two starts have the same."""
        if stored is not None and stored > self.epoch:
            raise self.taken_over()
        if stored != self.epoch:
            state = "nothing of this cluster" if stored is None else f"epoch {stored}"
            raise self.went_back(f"it has {state}, this drainer began there with epoch {self.epoch}")

    def check_position(self, what: str, confirmed: Position | None, stored: Position | None) -> None:
        """`confirmed`: what the server answered to a COMMIT last, None if nothing was committed yet."""
        if confirmed is not None and (stored is None or stored.order_key() < confirmed.order_key()):
            raise self.went_back(f"{what} stands at {_text(stored)}, {_text(confirmed)} was committed")

    def check_writes(self, confirmed: int, stored: int | None) -> None:
        """The same of the number of the checkpoint store's last write."""
        if stored is None or stored < confirmed:
            raise self.went_back(
                f"write {confirmed} of the checkpoint's tables was committed, {stored} is there"
            )


def _text(position: Position | None) -> str:
    if position is None:
        return "nothing"
    return str(position.commit_ts) if position.rows < 0 else f"{position.commit_ts}:{position.rows}"
