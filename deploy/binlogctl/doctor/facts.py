"""Facts: what gatherers bring from the cluster for the cores to check. Values only.

Times are seconds since 1970, `_ts` timestamps of the oracle, sizes bytes. None: not known. An `error` is one
line that may be shown.

Tests  tests/deploy/binlogctl/doctor/checks/test_checks.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from drainer.mysql.rows.dialect import Dialect
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.status.pump import PumpStatus
from tidb_binlog.status.troubles import Trouble
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from tidb_binlog.net.http_client import Page

_DATE_STEP_S: Final = 1.0
VARIABLES: Final = (
    "binlog_format",
    "character_set_server",
    "collation_server",
    "default_storage_engine",
    "innodb_force_recovery",
    "innodb_read_only",
    "log_bin",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_connections",
    "max_statement_time",
    "innodb_flush_log_at_trx_commit",
    "read_only",
    "sql_mode",
    "sql_require_primary_key",
    "super_read_only",
    "system_time_zone",
    "tidb_restricted_read_only",
    "tidb_super_read_only",
    "time_zone",
    "wait_timeout",
    "wsrep_on",
)
"""Global variables of a downstream that are read."""


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """Another clock against ours. `offset_s`: theirs minus ours, right to within `slack_s`."""

    who: str
    offset_s: float
    slack_s: float

    @classmethod
    def of_page(cls, who: str, page: Page, body_s: float | None = None) -> ClockFacts | None:
        """By the header of an answer; `body_s` is what its body says more exactly."""
        slack_s = (page.ended_s - page.began_s) / 2
        middle_s = (page.began_s + page.ended_s) / 2
        if body_s is not None:
            return cls(who, body_s - middle_s, slack_s)
        if page.date_s is None:
            return None
        return cls(who, page.date_s + _DATE_STEP_S / 2 - middle_s, slack_s + _DATE_STEP_S / 2)


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One client URL of PD or etcd. `configured`: it stands in pd-urls, and was not only learnt."""

    url: str
    configured: bool
    error: str | None = None
    cluster_id: int | None = None
    name: str = ""
    has_leader: bool | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One TiKV store as PD knows it, and whether its address takes a connection from here."""

    store_id: int
    address: str
    state: str
    version: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node says of itself. `foreign`: it is not one of ours and says little.

    `registered`: ids of the pumps that its registry has. `pump`: what a pump says; `capacity`: bytes of its
    volume. `troubles`: what it complains of.
    """

    foreign: bool
    node_id: str | None = None
    cluster_id: int | None = None
    version: str | None = None
    time_s: float | None = None
    registered: frozenset[str] | None = None
    pump: PumpStatus = field(default_factory=PumpStatus)
    capacity: int | None = None
    troubles: tuple[Trouble, ...] = ()


def host_of(address: str) -> str:
    """The host of host:port, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")


def curl(address: str, path: str, *, tls: bool) -> str:
    """The command that asks for a page as the doctor does."""
    files = " --cacert CA --cert CERT --key KEY" if tls else ""
    return f"curl -s{files} '{'https' if tls else 'http'}://{address}{path}'"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One entry of the registry, and what was found at its address.

    `alive`: as the registry has it, None for a node that keeps no lease. `resolved`: addresses of its host
    as they are seen from here, None when its name is not known here. `answer` and `error`: at most one.
    """

    kind: str
    node_id: str
    host: str
    state: str
    alive: bool | None
    max_commit_ts: Ts = 0
    update_ts: Ts = 0
    resolved: tuple[str, ...] | None = None
    answer: Answer | None = None
    error: str | None = None
    tls: bool = False
    reader: bool = False

    @property
    def label(self) -> str:
        """Name it for a sentence."""
        return f"{'reader' if self.reader else self.kind.removesuffix('s')} {self.node_id}"

    @property
    def forget(self) -> str:
        """The command that takes it out of the registry for good."""
        return f"binlogctl forget {self.node_id}"

    def curl(self, path: str) -> str:
        """Give the command that asks for one of its pages."""
        return curl(self.host, path, tls=self.tls)


@dataclass(frozen=True, slots=True)
class TidbFacts:
    """One TiDB server, at its status port. `binlog`: On, Off, Skipping or Unknown, from its own mouth if it
    answers.

    `skipping`: its pump client gave up writing, as /binlog/recover says.
    """

    address: str
    binlog: str | None = None
    skipping: bool | None = None
    version: str = ""
    error: str | None = None
    tls: bool = False

    def curl(self, path: str) -> str:
        """Give the command that asks for one of its pages."""
        return curl(self.address, path, tls=self.tls)


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The checkpoint tables. `rows`: text of the row by cluster id; None: there is no table yet."""

    schema: str
    table: str
    rows: Mapping[int, str] | None = None
    owner: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table of the downstream. `has_key`: primary or unique."""

    schema: str
    name: str
    engine: str
    has_key: bool


@dataclass(frozen=True, slots=True)
class DownstreamFacts:
    """A downstream server, seen with the drainer's own user.

    `variables` are global ones by lower-case name, as SHOW GLOBAL VARIABLES has them. `grants` are lines of
    SHOW GRANTS: never to be shown, they may hold hashes of passwords. `untransactional`: tables that cannot
    be rolled back.
    """

    where: str
    user: str = ""
    version: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    grants: tuple[str, ...] | None = None
    zone_offset_s: float | None = None
    knows_zones: bool | None = None
    clock: ClockFacts | None = None
    checkpoint: CheckpointFacts | None = None
    untransactional: tuple[TableFacts, ...] = ()
    error: str | None = None
    refused: bool = False

    @property
    def is_mariadb(self) -> bool:
        """Say so by its version."""
        return Dialect.of(self.version) is Dialect.MARIADB

    @property
    def is_tidb(self) -> bool:
        """Say so by its version."""
        return Dialect.of(self.version) is Dialect.TIDB


@dataclass(frozen=True, slots=True)
class Replicated:
    """What a drainer writes, by its configuration. `databases`: None for whatever there is upstream.

    `node_id`: "" if the file does not name it; then `address`, where it tells others to reach it, does.
    """

    databases: tuple[str, ...] | None
    checkpoint_schema: str
    lanes: int
    node_id: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """One set of TLS files. `option` names where it is configured; `hosts`: names that it is reached by.

    `names`: host names and addresses of the certificate; `trusted`: the authority vouches for it.
    """

    option: str
    path: str
    error: str | None = None
    common_name: str = ""
    names: tuple[str, ...] = ()
    not_before_s: float = 0.0
    not_after_s: float = 0.0
    trusted: bool | None = None
    hosts: tuple[str, ...] = ()
