"""Options: every interval and limit of the client, with its unit in the name."""

from __future__ import annotations

from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, fields


@dataclass(frozen=True, slots=True)
class Options:
    """Intervals (seconds) and limits of a `PumpClient`; the defaults are those of TiDB's pump client.

    Raises `ConfigError` for a number that is not above zero (`errors_max` may be zero).
    """

    write_timeout_s: float = 15.0
    """Deadline of one call to a pump, and the least time for which a prewrite is tried; when no pump has been
    usable for so long, prewrites fail at once."""
    retry_pause_s: float = 0.1
    """Pause of a prewrite after every usable pump has failed it once more."""
    finish_retry_pause_s: float = 1.0
    """Pause between attempts of a commit or rollback."""
    finish_deadline_s: float = 600.0
    """A commit or rollback is given up, and counted as lost, after this long."""
    probe_interval_s: float = 30.0
    """How often a pump that is out is asked whether it takes prewrites again."""
    errors_max: int = 10
    """Consecutive errors a pump may have; with one more it is out."""
    affinity_entries_max: int = 100_000
    """Prewrites whose end is still to come; past it the oldest is forgotten (its commit is not sent)."""
    affinity_age_max_s: float = 3600.0
    """A prewrite without an end is forgotten after this long."""
    registry_timeout_s: float = 5.0
    """Deadline of the first read of the registry."""
    batches: bool = True
    """Send many binlogs a message to pumps that take them; off: one call a binlog, as TiDB does."""
    ignore_error: bool = False
    """When no pump takes a prewrite, let the transaction continue and skip every binlog from then on, until
    `recover`: readers of the pumps miss what follows. Off: the prewrite raises, the transaction fails."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool":
                if not isinstance(value, bool):
                    raise ConfigError(
                        f"pump client option {field.name} is {value}", hint="give True or False"
                    )
                continue
            least_ok = value >= 0 if field.name == "errors_max" else value > 0
            if not least_ok:
                raise ConfigError(
                    f"pump client option {field.name} is {value}",
                    hint="give a number above zero",
                )
