"""Rule history: which rules are in force from where on in the stream, as a document that can be stored.

Out    for every commit_ts the rules that its rows and DDL went out by
Holds  the rules of rows that may come again are those of that time, whatever the configuration says now
       Other rules come into force at one commit_ts, like a DDL: between two transactions, where all lanes and
       the checkpoint stand, stored first. The reload is answered with that commit_ts
Why    while something waits for a decision, a start reads from before it: through several changes of rules
       perhaps. Otherwise the last rules are all that is kept
Never  changes where a waiting table goes: what is kept of it and what comes later would be two tables'
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from drainer.checkpoint.lane_basis import StoredBasis, damaged
from drainer.stream.rules.row_rule import withheld
from drainer.stream.rules.rule_set import FIXED_FIELDS, MADE_OF, RULE_FIELDS, Rules, read_rules
from tidb_binlog.errors import BinlogError, ConfigError, Rejected
from tidb_binlog.late_dataclass import dataclass, replace
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
    for condition in (*old.get(_EARLIER, ()), was):
        if condition != now and condition not in earlier:
            earlier.append(condition)
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
        """Begins a history: these rules hold for all commits above `after_ts`."""
        return cls((Era(after_ts, rules),))

    @property
    def last(self) -> Rules:
        """The rules that hold from the last change on."""
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
        """Writes what `from_json` reads."""
        return json.dumps([{"after": era.after_ts, "rules": era.rules.text} for era in self.eras])

    @classmethod
    def from_json(cls, text: str, candidates: Iterable[Rules] = ()) -> RuleHistory:
        """Rules of `candidates` are taken where the text is theirs. Raises `Corruption`, `ConfigError`."""
        by_text: dict[str, Rules] = {rules.text: rules for rules in candidates}
        try:
            entries = [(int(entry["after"]), str(entry["rules"])) for entry in json.loads(text)]
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(f"rules {text[:100]!r} ({type(error).__name__})") from None
        if not entries:
            raise damaged("there are no rules")
        eras = [Era(after_ts, _once(by_text, text, rules_from)) for after_ts, text in entries]
        return cls(tuple(eras))


def _once(by_text: dict[str, Rules], text: str, make: Callable[[str], Rules]) -> Rules:
    if text not in by_text:
        by_text[text] = make(text)
    return by_text[text]


change_logger = log.get("drainer.rule_change")

NAMES_MAX: Final = 20
"""Shown in one line of the log."""
ASKED_WAIT_S: Final = 30.0
"""How long a reload waits for a drained point between two transactions."""


class Ruled(Protocol):
    """The translator."""

    @property
    def rules(self) -> Rules: ...
    def names(self) -> list[tuple[str, str]]: ...
    def replay(self, history: RuleHistory) -> None: ...
    def check_rules(self, rules: Rules) -> None: ...
    def take_rules(self, rules: Rules) -> None: ...


class RuleChange:
    """`basis` is of an earlier start, None if there is none. `ruled` is None where items come with the rules
    of their time: from a relay log. Raises `Corruption`, `ConfigError`."""

    def __init__(self, ruled: Ruled | None, target: Rules, basis: StoredBasis | None) -> None:
        self._ruled = ruled
        self._wanted = target
        self._is_stored = basis is not None
        self._history: RuleHistory | None = None
        self._asked: asyncio.Future[int] | None = None
        if ruled is not None and basis is not None:
            self._history = RuleHistory.from_json(basis.rules, [target])
            ruled.replay(self._history)

    @property
    def due(self) -> bool:
        """Whether other rules than those in force are to be stored and taken."""
        if self._history is None:
            return not self._is_stored
        return asked_text(self._history.last.text) != self._wanted.text

    @property
    def made_of(self) -> dict[str, str]:
        """Of the rules that were asked for last, in force or about to be."""
        return self._wanted.rows.made_of

    def at(self, ts: Ts) -> Rules:
        """Those by which a transaction of the stream goes out, as far as they are stored."""
        return self._wanted if self._history is None else self._history.at(ts)

    @property
    def asked(self) -> bool:
        """Whether a reload waits for it."""
        return self._asked is not None

    def check(self, rules: Rules, waits: Callable[[str, str], bool]) -> None:
        """`ConfigError` for rules that contradict each other, `Rejected` if a table that `waits` for a
        decision would go elsewhere."""
        assert self._ruled is not None
        self._ruled.check_rules(rules)
        before = self._wanted if self._history is None else self._history.last
        for name in self._ruled.names():
            if waits(*name) and before.router.route(*name) != rules.router.route(*name):
                raise Rejected(
                    f"{'.'.join(name)} waits for a decision about a DDL, with rows for"
                    f" {'.'.join(before.router.route(*name))}: it cannot go elsewhere meanwhile",
                    hint="take its route back, or decide first: `binlogctl ddl list` shows what waits",
                )

    def check_wanted(self, waits: Callable[[str, str], bool]) -> None:
        """As `check`, for the rules that are due at the start."""
        if self.due and self._history is not None:
            self.check(self._wanted, waits)

    async def asked_for(self, rules: Rules, wake: Callable[[], None], doing: Callable[[], str]) -> int:
        """Have rules taken that were checked; the commit_ts after which they are in force.

        `wake` lets the stream ask for them; `doing` says what it does. Raises `Rejected`: nothing changed.
        """
        assert self._asked is None
        before, self._wanted = self._wanted, rules
        self._asked = asked = asyncio.get_running_loop().create_future()
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
        wake()
        try:
            async with asyncio.timeout(ASKED_WAIT_S):
                return int(await asyncio.shield(asked))
        except asyncio.CancelledError:
            if self._withdraw(asked, before):
                raise
            return int(await asyncio.shield(asked))  # what is in force is noted all the same
        except TimeoutError:
            if not self._withdraw(asked, before):
                return int(await asked)
            raise Rejected(
                f"the drainer came to no drained point between two transactions within {ASKED_WAIT_S:.0f} s"
                f" ({doing()}); the rules are as they were",
                hint="try again; `/status` shows what it waits for",
            ) from None

    def _withdraw(self, asked: asyncio.Future[int], before: Rules) -> bool:
        """False where it is too late, since they are being stored."""
        if self._asked is not asked:
            return False
        self._asked, self._wanted = None, before
        return True

    @contextlib.contextmanager
    def taking(self, at_ts: Ts, floor_ts: Ts) -> Iterator[RuleHistory]:
        """The wanted rules after `at_ts`, to be stored and taken inside; then the reload is answered."""
        asked, self._asked = self._asked, None
        try:
            yield self.following(at_ts, floor_ts)
        except BaseException as error:
            if asked is not None and not asked.done():
                reason = error.message if isinstance(error, BinlogError) else "the drainer stops"
                asked.set_exception(Rejected(f"the rules could not be stored: {reason}"))
            raise
        change_logger.info("rules are in force", commit_ts=at_ts)
        if asked is not None and not asked.done():
            asked.set_result(at_ts)

    def following(self, at_ts: Ts, floor_ts: Ts) -> RuleHistory:
        """With the wanted rules after `at_ts`; nothing at or below `floor_ts` comes again."""
        history = self._history or RuleHistory.since(0, self._wanted)
        return history.followed_by(at_ts, self._wanted).since_floor(floor_ts)

    def take(self, history: RuleHistory) -> None:
        """They are stored, and nothing is under way: in force from here."""
        before, self._history, self._is_stored = self._history, history, True
        if self._ruled is None:
            return
        if before is not None:
            _warn_of_missing(before.last, history.last, self._ruled.names())
        self._ruled.take_rules(history.last)


def _warn_of_missing(before: Rules, rules: Rules, names: Iterable[tuple[str, str]]) -> None:
    """Tables that replicate from here on lack downstream what they had until now."""
    added = [".".join(name) for name in names if rules.allows(*name) and not before.allows(*name)]
    if added:
        shown = sorted(added)[:NAMES_MAX]
        change_logger.warning(
            "tables replicate from now on: rows that they have upstream already are not downstream",
            tables=shown,
            more=len(added) - len(shown),
            hint=f"`binlogctl load -tables '{','.join(shown)}'` brings them into a database",
        )
