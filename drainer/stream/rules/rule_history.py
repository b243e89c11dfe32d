"""Rule history: which rules are in force from where on in the stream, as a document that can be stored.

In     configurations, the text that the last start stored
Out    for every commit_ts the rules that its rows and DDL went out by
Holds  the rules of rows that may come again are those of that time, whatever the configuration says now
Why    while something waits for a decision, a start reads from before it: through several changes of rules
       perhaps. Otherwise the last rules are all that is kept
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from drainer.checkpoint.lane_basis import damaged
from drainer.stream.rules.row_rule import withheld
from drainer.stream.rules.rule_set import FIXED_FIELDS, MADE_OF, RULE_FIELDS, Rules, read_rules
from tidb_binlog.errors import ConfigError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.rule_history")

_EARLIER: Final = "earlier_row_rules"
"""In the text beside the options: what row rules withheld before, each time another set; see `RowRules`."""


def rules_from(text: str) -> Rules:
    """The rules of a stored text. Raises `Corruption`, `ConfigError`."""
    from drainer.config.options import DrainerConfig  # only a Drainer has such a text

    try:
        document = json.loads(text)
        made_of, earlier = document.pop(MADE_OF, {}), document.pop(_EARLIER, ())
        unknown = document.keys() - {*RULE_FIELDS, *FIXED_FIELDS}
        fields = {name: _read(value) for name, value in document.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(f"rules {text[:100]!r} ({type(error).__name__})") from None
    if unknown:
        raise ConfigError(
            f"rows that are not applied yet went out by rules that this release does not know: "
            f"{', '.join(sorted(unknown))}",
            hint="start the newer release again and stop it gracefully, then start this one",
        )
    rules = read_rules(replace(DrainerConfig(), **fields))
    now = rules.rows.made_of
    for name in sorted(made_of):
        if now.get(name) != made_of[name]:
            logger.warning(f"{name} is another one: rows that are applied again go out by it as it is now")
    if earlier:
        rules = replace(rules, rows=rules.rows.following(earlier))
    return replace(rules, text=text)


def asked_text(text: str) -> str:
    """The part of a stored text that a configuration says."""
    document = _document(text)
    return json.dumps(document, sort_keys=True) if document.pop(_EARLIER, None) else text


def _after(before: Rules, rules: Rules) -> Rules:
    """Rules, and what is to be remembered of those before them: by which conditions rows went out."""
    old, new = _document(before.text), _document(rules.text)
    was, now = (withheld(document.get("row_rule", ())) for document in (old, new))
    earlier: list[Any] = []
    for one in (*old.get(_EARLIER, ()), was):
        if one != now and one not in earlier:
            earlier.append(one)
    if not earlier:
        return rules
    text = json.dumps({**new, _EARLIER: earlier}, sort_keys=True)
    return replace(rules, rows=rules.rows.following(earlier), text=text)


def _document(text: str) -> dict[str, Any]:
    return json.loads(text) if text else {}


def _read(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Era:
    """`rules` are in force after `after_ts`, until the next era."""

    after_ts: Ts
    rules: Rules


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """At least one era, in order."""

    eras: tuple[Era, ...]

    @classmethod
    def since(cls, after_ts: Ts, rules: Rules) -> RuleHistory:
        return cls((Era(after_ts, rules),))

    @property
    def last(self) -> Rules:
        return self.eras[-1].rules

    def at(self, commit_ts: Ts) -> Rules:
        """The rules of a transaction or DDL; before the first era those of the first."""
        begun = [era.rules for era in self.eras if era.after_ts < commit_ts]
        return begun[-1] if begun else self.eras[0].rules

    def followed_by(self, after_ts: Ts, rules: Rules) -> RuleHistory:
        """Other rules after a commit_ts of the stream. They know what went out by those before."""
        kept = [era for era in self.eras if era.after_ts < after_ts]
        return RuleHistory((*kept, Era(after_ts, _after(self.last, rules))))

    def since_floor(self, floor_ts: Ts) -> RuleHistory:
        """Without eras of which nothing after the floor is left."""
        kept = [
            era
            for era, following in zip(self.eras, self.eras[1:], strict=False)
            if following.after_ts > floor_ts
        ]
        return RuleHistory((*kept, self.eras[-1]))

    def to_json(self) -> str:
        return json.dumps([{"after": era.after_ts, "rules": era.rules.text} for era in self.eras])

    @classmethod
    def from_json(cls, text: str, known: Iterable[Rules] = ()) -> RuleHistory:
        """`known` rules are taken where the text is theirs. Raises `Corruption`, `ConfigError`."""
        made: dict[str, Rules] = {rules.text: rules for rules in known}
        try:
            entries = [(int(entry["after"]), str(entry["rules"])) for entry in json.loads(text)]
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(f"rules {text[:100]!r} ({type(error).__name__})") from None
        if not entries:
            raise damaged("there are no rules")
        eras = [Era(after_ts, _once(made, text, rules_from)) for after_ts, text in entries]
        return cls(tuple(eras))


def _once(made: dict[str, Rules], text: str, make: Callable[[str], Rules]) -> Rules:
    if text not in made:
        made[text] = make(text)
    return made[text]
