"""Random table definitions, and random changes of them, as TiDB's TableInfo JSON."""

from __future__ import annotations

import copy
import random
from typing import Any

TEXT = ("utf8mb4", "utf8mb4_bin")
COLLATIONS = (TEXT, ("utf8mb4", "utf8mb4_general_ci"), ("latin1", "latin1_bin"), ("utf8", "utf8_bin"))
NOT_NULL, UNSIGNED, ON_UPDATE, NO_DEFAULT = 1, 32, 8192, 4096


def name(text: str) -> dict[str, str]:
    return {"O": text, "L": text.lower()}


def kind(tp: int, flen: int = -1, decimal: int = -1, **more: Any) -> dict[str, Any]:
    found = {"Tp": tp, "Flag": 0, "Flen": flen, "Decimal": decimal}
    return {**found, "Charset": "binary", "Collate": "binary", "Elems": None, **more}


class Maker:
    """Numbers columns and keys as TiDB does: an id is never used twice."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._ids = 0

    def table(self, columns: int) -> dict[str, Any]:
        document: dict[str, Any] = {
            "id": 1,
            "name": name("t"),
            "charset": "utf8mb4",
            "collate": "utf8mb4_bin",
            "comment": self._comment(),
            "cols": [self.column("id", kind(3, 11), NOT_NULL)],
            "index_info": [self.key("PRIMARY", ["id"], primary=True)],
        }
        for number in range(columns):
            document["cols"].append(self.any_column(f"c{number}"))
        for number in range(self.random.randrange(3)):
            self.add_key(document, f"k{number}")
        return self.numbered(document)

    # -- parts ----------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._ids += 1
        return self._ids

    def _comment(self) -> str:
        return self.random.choice(("", "", "it's", 'a "quoted" \\ one', "日本"))

    def column(
        self, called: str, type_: dict[str, Any], flag: int = 0, default: str | None = None, **more: Any
    ) -> dict[str, Any]:
        type_ = {**type_, "Flag": type_["Flag"] | flag}
        found = {"id": self._next(), "name": name(called), "type": type_, "state": 5, "default": default}
        return {"origin_default": default, "comment": "", "generated_expr_string": "", **found, **more}

    def any_column(self, called: str) -> dict[str, Any]:
        pick = self.random
        charset, collate = pick.choice(COLLATIONS)
        text: dict[str, Any] = {"Charset": charset, "Collate": collate}
        fsp = pick.choice((0, 3, 6))
        type_, default = pick.choice(
            [
                (kind(3, 11), "-7"),
                (kind(8, 20, Flag=UNSIGNED), "18446744073709551615"),
                (kind(1, 4), "1"),
                (kind(0xF6, 12, 3), "-1.250"),
                (kind(5, 22), "1.5"),
                (kind(4, 12), "0.25"),
                (kind(12, 19 + fsp, fsp), "2020-01-02 03:04:05"),
                (kind(10, 10), "2021-02-03"),
                (kind(11, 10, 0), "-10:11:12"),
                (kind(13, 4, Flag=UNSIGNED), "1999"),
                (kind(15, pick.choice((1, 20, 300)), **text), "x"),
                (kind(0xFE, 5, **text), "'q'"),
                (kind(15, 16), "\\"),
                (kind(0xFE, 4), "ab"),
                (kind(0xFC, 65535, **text), None),
                (kind(0xFB, -1), None),
                (kind(0xF5, -1), None),
                (kind(0xF7, 1, Charset=charset, Collate=collate, Elems=["a", "B", "it's", "x,y"]), "B"),
                (kind(0xF8, 5, Charset=charset, Collate=collate, Elems=["p", "q", "r"]), "p,r"),
                (kind(7, 19, 0), "2020-01-02 03:04:05"),
            ]
        )
        flag = pick.choice((0, NOT_NULL)) if type_["Tp"] != 0xF5 else 0
        wanted = default if pick.random() < 0.5 else None
        if flag and wanted is None:
            flag |= NO_DEFAULT
        if type_["Tp"] in (7, 12) and pick.random() < 0.3:
            wanted, flag = "CURRENT_TIMESTAMP", flag & ~NO_DEFAULT | pick.choice((0, ON_UPDATE))
        origin = wanted if wanted != "CURRENT_TIMESTAMP" else "2019-09-09 09:09:09"
        found = self.column(called, type_, flag, wanted, origin_default=origin, comment=self._comment())
        if pick.random() < 0.1:
            plain = self.column(called, kind(8, 20), 0)
            return {**plain, "generated_expr_string": "`id` + 1", "generated_stored": pick.random() < 0.5}
        return found

    def key(self, called: str, columns: list[str], *, unique: bool = False, primary: bool = False) -> Any:
        parts = [{"name": name(column), "offset": 0, "length": -1} for column in columns]
        found = {"id": self._next(), "idx_name": name(called), "idx_cols": parts, "state": 5}
        return {**found, "is_unique": unique or primary, "is_primary": primary}

    def add_key(self, document: dict[str, Any], called: str) -> None:
        usable = [
            column
            for column in document["cols"]
            if column["type"]["Tp"] not in (0xF5, 0xFB) and not column["generated_expr_string"]
        ]
        chosen = self.random.sample(usable, min(len(usable), self.random.choice((1, 2))))
        made = self.key(called, [one["name"]["O"] for one in chosen], unique=self.random.random() < 0.3)
        for part, column in zip(made["idx_cols"], chosen, strict=True):
            if column["type"]["Tp"] == 0xFC or column["type"]["Flen"] == 300:
                part["length"] = self.random.choice((3, 10))
        document["index_info"].append(made)

    def numbered(self, document: dict[str, Any]) -> dict[str, Any]:
        """With the offsets that follow from the order of the columns; keys of columns that are gone go."""
        at = {column["name"]["L"]: number for number, column in enumerate(document["cols"])}
        for column in document["cols"]:
            column["offset"] = at[column["name"]["L"]]
        kept = []
        for key in document["index_info"]:
            if all(part["name"]["L"] in at for part in key["idx_cols"]):
                for part in key["idx_cols"]:
                    part["offset"] = at[part["name"]["L"]]
                kept.append(key)
        document["index_info"] = kept
        return document

    # -- changes --------------------------------------------------------------------------------------

    def changed(self, before: dict[str, Any], step: int) -> dict[str, Any]:
        """The definition after one to three changes of any kind."""
        document = copy.deepcopy(before)
        for number in range(self.random.choice((1, 1, 2, 3))):
            change = self.random.choice(
                (
                    *(self._add, self._add, self._drop, self._retype, self._rename, self._move),
                    *(self._more_keys, self._fewer_keys, self._rename_key, self._describe),
                    *(self._local, self._check),
                )
            )
            change(document, f"{step}_{number}")
        return self.numbered(document)

    def _some(self, document: dict[str, Any]) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = document["cols"][:]
        found = [column for column in found if column["name"]["O"] != "id"]
        return self.random.choice(found) if found else None

    def _add(self, document: dict[str, Any], called: str) -> None:
        at = self.random.randrange(len(document["cols"]) + 1)
        document["cols"].insert(at, self.any_column(f"n{called}"))

    def _drop(self, document: dict[str, Any], _: str) -> None:
        column = self._some(document)
        if column is not None:
            document["cols"].remove(column)
            gone = column["name"]["L"]
            document["index_info"] = [
                key
                for key in document["index_info"]
                if all(part["name"]["L"] != gone for part in key["idx_cols"])
            ]

    def _retype(self, document: dict[str, Any], _: str) -> None:
        """Wider, another default, another comment: what needs no conversion of values."""
        column = self._some(document)
        if column is not None and not column["generated_expr_string"]:
            column["comment"] = self._comment()
            if column["type"]["Tp"] == 15 and column["type"]["Flen"] != 300:
                column["type"]["Flen"] += 7
            if column["type"]["Tp"] == 3:
                column["type"]["Tp"], column["default"] = 8, "12345678901"
                column["type"]["Flag"] &= ~NO_DEFAULT

    def _local(self, document: dict[str, Any], _: str) -> None:
        """An instant becomes a local time, or back: under a new id, as all whose values are converted."""
        for column in document["cols"]:
            if column["type"]["Tp"] in (7, 12) and not column["generated_expr_string"]:
                column["type"]["Tp"] = 19 - column["type"]["Tp"]
                column["id"] = self._next()
                return

    def _check(self, document: dict[str, Any], called: str) -> None:
        """One more, one less, or one that says something else."""
        checks = document.setdefault("constraint_info", [])
        if checks and self.random.random() < 0.5:
            gone = checks.pop(self.random.randrange(len(checks)))
            called = gone["constraint_name"]["O"] if self.random.random() < 0.5 else called
        text = f"`id` > {-self.random.randrange(1, 99)}"
        checks.append(
            {"constraint_name": name(f"h{called}"), "expr_string": text, "enforced": True, "state": 5}
        )

    def _rename(self, document: dict[str, Any], called: str) -> None:
        column = self._some(document)
        if column is not None:
            old = column["name"]["L"]
            column["name"] = name(f"r{called}")
            for key in document["index_info"]:
                for part in key["idx_cols"]:
                    if part["name"]["L"] == old:
                        part["name"] = name(f"r{called}")

    def _move(self, document: dict[str, Any], _: str) -> None:
        column = self.random.choice(document["cols"])
        document["cols"].remove(column)
        document["cols"].insert(self.random.randrange(len(document["cols"]) + 1), column)

    def _more_keys(self, document: dict[str, Any], called: str) -> None:
        self.add_key(document, f"k{called}")

    def _fewer_keys(self, document: dict[str, Any], _: str) -> None:
        keys = [key for key in document["index_info"] if not key["is_primary"]]
        if keys:
            document["index_info"].remove(self.random.choice(keys))

    def _rename_key(self, document: dict[str, Any], called: str) -> None:
        keys = [key for key in document["index_info"] if not key["is_primary"]]
        if keys:
            self.random.choice(keys)["idx_name"] = name(f"kr{called}")

    def _describe(self, document: dict[str, Any], _: str) -> None:
        document["comment"] = self._comment()
