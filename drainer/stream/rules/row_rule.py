"""Row rule: which rows of a table replicate, and what of them is hidden (`[[syncer.row-rule]]`).

In     rules with `db-name`, `tbl-name` (as in `replicate-do-table`), and `where`, `mask`, `python`
Out    the rules of a table, in order; whether rows of it may be withheld
Holds  several rules may be about one table: a row passes if all conditions hold, then columns are masked,
       then functions see it, in the order of the configuration. Two masks of one column are a `ConfigError`
Why    what reads and compiles rules is imported when there is one: most Drainers start without

    condition = compile_where("total >= 100 AND state <> 'draft'")
    of_table = condition.of(table_version.info, "shop.orders")
    of_table.insert(row)                    whether an INSERT row is in the set; so `delete`
    was, now, split = of_table.update(row)  whether an UPDATE row was in it and is; where its second half is
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from drainer.config import rule_keys
from drainer.stream.rules.name_pattern import known_keys, names_tables
from drainer.stream.rules.table_rules import Pattern, compile_name
from tidb_binlog.config import secret_file
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass

if TYPE_CHECKING:
    from drainer.stream.rules.mask import Mask
    from drainer.stream.rules.python_rule import PythonRule
    from drainer.stream.rules.where.compiler import RowCondition
    from drainer.stream.rules.where.expression import Condition
    from tidb_binlog.table_info import TableInfo

_ACTIONS: Final = ("where", "mask", "python")
_SALT_BYTES_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class Where:
    """A condition that was read. `label` is how errors name it."""

    condition: Condition
    label: str

    def of(self, info: TableInfo, table: str) -> RowCondition:
        """The condition for rows of one table version. Raises `ConfigError` for a column that it lacks, and
        for comparisons that have no sure answer."""
        from drainer.stream.rules.where.compiler import RowCondition

        return RowCondition(self.condition, info, self.label, table)


def compile_where(text: str, label: str = "where") -> Where:
    """Read a condition. Raises `ConfigError`, which names the character that is wrong."""
    from drainer.stream.rules.where.expression import parse

    return Where(parse(text, label), label)


@dataclass(frozen=True, slots=True)
class RowRule:
    """One rule. `label` is how errors name it."""

    label: str
    schema: Pattern
    table: Pattern
    where: Where | None = None
    masks: tuple[Mask, ...] = ()
    python: PythonRule | None = None

    @classmethod
    def read(cls, label: str, rule: Mapping[str, Any], *, idle: bool = False) -> RowRule:
        """One `[[syncer.row-rule]]`, which may do nothing if `idle`. Raises `ConfigError`."""
        known_keys(label, rule, rule_keys.ROWS)
        names_tables(label, rule)
        if not idle and not any(key in rule for key in _ACTIONS):
            raise ConfigError(f"{label} does nothing", hint="give it where, mask or python")
        for key in ("where", "python", "salt-file"):
            if key in rule and not isinstance(rule[key], str):
                raise ConfigError(f"{label}: {key} is no text", hint=f'write {key} = "..."')
        names = (
            compile_name(rule["db-name"], f"{label}.db-name"),
            compile_name(rule["tbl-name"], f"{label}.tbl-name"),
        )
        where = compile_where(rule["where"], f"{label}: where") if "where" in rule else None
        python = None
        if "python" in rule:
            from drainer.stream.rules.python_rule import PythonRule

            python = PythonRule.of(label, rule["python"])
        return cls(label, *names, where, _masks(label, rule), python)

    @property
    def withholds(self) -> bool:
        """Whether it may leave out rows."""
        return self.where is not None or self.python is not None

    def made_of(self) -> Iterator[tuple[str, str]]:
        """(what, digest) of what the rule names."""
        if self.python is not None:
            yield self.python.label, self.python.source
        for mask in self.masks:
            if mask.salt_digest:
                yield f"{self.label}: salt-file", mask.salt_digest

    def matches(self, schema: str, table: str) -> bool:
        """Says whether the rule is about a table."""
        return bool(self.schema.search(schema) and self.table.search(table))


class RowRules:
    """`earlier`: what else was in force since rows went out, each time the rules that withheld some. Rows of
    that time may be downstream, or be missing there, until they change."""

    def __init__(self, rules: Iterable[RowRule] = (), earlier: Iterable[Sequence[RowRule]] = ()) -> None:
        self._rules = tuple(rules)
        self._earlier = tuple(earlier)
        self._withholding = [rule for rule in self._rules if rule.withholds]
        self._withholding += [rule for rules in self._earlier for rule in rules]

    @property
    def is_empty(self) -> bool:
        """Says that no row is changed or withheld."""
        return not self._rules

    @property
    def withhold_any(self) -> bool:
        """Whether rows of any table may be left out."""
        return bool(self._withholding)

    @property
    def made_of(self) -> dict[str, str]:
        """Digests of what rules name and the configuration does not hold: source of functions, salts."""
        return {name: digest for rule in self._rules for name, digest in rule.made_of()}

    def withholds(self, schema: str, table: str) -> bool:
        """Whether rows of a table may be left out."""
        return any(rule.matches(schema, table) for rule in self._withholding)

    def earlier_of(self, schema: str, table: str) -> list[list[RowRule]]:
        """What earlier rules withheld of a table; an empty list: nothing."""
        return [[rule for rule in rules if rule.matches(schema, table)] for rules in self._earlier]

    def of_table(self, schema: str, table: str) -> tuple[RowRule, ...]:
        """The rules about a table, in order."""
        return tuple(rule for rule in self._rules if rule.matches(schema, table))

    def following(self, earlier: Iterable[Sequence[Mapping[str, Any]]]) -> RowRules:
        """With those before them, of which `earlier` has what `withheld` says. Raises `ConfigError`."""
        read = [
            [RowRule.read("an earlier `row-rule`", rule, idle=True) for rule in rules] for rules in earlier
        ]
        return RowRules(self._rules, read)

    def with_where(self, where: Where) -> RowRules:
        """With one more condition, for every table."""
        every = compile_name("~.*", where.label)
        return RowRules((*self._rules, RowRule(where.label, every, every, where)), self._earlier)


def read_row_rules(rules: Sequence[Mapping[str, Any]]) -> RowRules:
    """All `[[syncer.row-rule]]`. Raises `ConfigError`."""
    return RowRules(RowRule.read(f"`row-rule` {number}", rule) for number, rule in enumerate(rules, 1))


def withheld(rules: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is to be remembered of rules: which rows they may have left out."""
    kept = ("db-name", "tbl-name", "where")
    return [
        {key: rule[key] for key in kept if key in rule} for rule in rules if {"where", "python"} & rule.keys()
    ]


def _masks(label: str, rule: Mapping[str, Any]) -> tuple[Mask, ...]:
    if "mask" not in rule and "salt-file" not in rule:
        return ()
    from drainer.stream.rules.mask import Mask

    given = rule.get("mask", {})
    if not isinstance(given, Mapping) or not (given or "mask" not in rule):
        raise ConfigError(f"{label}: mask is no table", hint='write mask = { email = "hash" }')
    masks = tuple(Mask.of(label, column, how, _salt(label, rule)) for column, how in given.items())
    if "salt-file" in rule and not any(mask.how == "hash" for mask in masks):
        raise ConfigError(f'{label} has a salt-file, and no mask "hash"', hint="remove the salt-file")
    return masks


def _salt(label: str, rule: Mapping[str, Any]) -> Callable[[], bytes]:
    def read() -> bytes:
        if "salt-file" not in rule:
            raise ConfigError(
                f'{label} has a mask "hash" and no salt-file',
                hint="a hash without a salt is guessed: `openssl rand -hex 32 > FILE`, salt-file = FILE",
            )
        salt = secret_file.read(f"{label}.salt-file", rule["salt-file"], "salt").encode()
        if len(salt) < _SALT_BYTES_MIN:
            raise ConfigError(
                f"{label}.salt-file {rule['salt-file']} holds {len(salt)} characters",
                hint=f"a salt has {_SALT_BYTES_MIN} at least: `openssl rand -hex 32` makes one",
            )
        return salt

    return read
