"""DDL policy: what is to become of one DDL.

In     a Ddl, the operator's rules in order
Out    a Ruling: apply the text, skip it, run another text, or stop; always with the reason
Holds  the first rule that means the statement decides; without one, what changes the data's shape is applied
       and what has no meaning downstream is passed over. A kind of DDL that is not known is applied: only
       the downstream can say whether it takes it
Never  overrules that a job changed nothing upstream or that the filter leaves its tables out: such a Ddl
       comes with its reason (`Ddl.skip`) and keeps it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drainer.ddl.rules import APPLY, GROUPS, REWRITE, SKIP, Rule
from drainer.txn import Ddl
from tidb_binlog.ddl_job import action_name
from tidb_binlog.late_dataclass import dataclass

_GROUPS_WITHOUT_MEANING: Final = {
    "lock": "table locks live in the upstream's sessions",
    "tiflash": "TiFlash replicas belong to the upstream's storage",
    "attributes": "attributes belong to the upstream's storage",
    "placement": "placement belongs to the upstream's storage",
    "cache": "cached tables belong to the upstream",
    "ttl": "rows that expire upstream arrive as deletes",
    "resource group": "resource groups belong to the upstream",
}
NO_DOWNSTREAM_MEANING: Final[Mapping[int, str]] = {
    action: why for group, why in _GROUPS_WITHOUT_MEANING.items() for action in GROUPS[group]
}
"""DDL actions that are passed over unless a rule says otherwise, with the reason."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """`text` is what to run, of a rewrite only. `rule`: number of the rule that decided, 0 for none."""

    action: str
    reason: str
    text: str = ""
    rule: int = 0


class Policy:
    """The rules in force. Immutable: another set of rules is another policy."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)

    def rule(self, ddl: Ddl) -> Ruling:
        """What becomes of the statement."""
        if ddl.skip:
            return Ruling(SKIP, ddl.skip)
        rule = self._first(ddl.action, ddl.tables, ddl.query)
        if rule is None:
            return by_default(ddl.action)
        text = rule.rewritten(ddl) if rule.action == REWRITE else ""
        return Ruling(rule.action, str(rule), text, rule.number)

    def explain(self, action: int, names: Sequence[tuple[str, str]], query: str) -> Ruling:
        """What would become of such a statement if it came now and the filter let it pass."""
        return self.rule(Ddl(0, 0, action, names[0][0] if names else "", query, tuple(names), 0))

    def documents(self) -> list[dict[str, Any]]:
        """The rules as an operator reads them."""
        return [
            {"rule": rule.number, "action": rule.action, "means": rule.words, "text": rule.text}
            for rule in self._rules
        ]

    def _first(self, action: int, names: Sequence[tuple[str, str]], query: str) -> Rule | None:
        return next((rule for rule in self._rules if rule.matches(action, names, query)), None)


def by_default(action: int) -> Ruling:
    """The ruling on a kind of DDL for which there is no rule."""
    why = NO_DOWNSTREAM_MEANING.get(action)
    kind = action_name(action)
    if why is not None:
        return Ruling(SKIP, f"{kind} has no meaning downstream: {why}")
    return Ruling(APPLY, f"{kind} may change what rows look like: applied unless a rule says otherwise")
