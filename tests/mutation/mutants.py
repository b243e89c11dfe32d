"""Mutants of a module: each differs from it in one place, as a slip of whoever wrote it would.

    <  <=   >  >=   ==  !=   in  not in   is  is not      compared otherwise
    and or   not x   if x                                 decided otherwise
    1 -> 2   True -> False   + -   * //   | &   << >>     reckoned otherwise
    min max   any all                                     asked otherwise
    return x -> return None   statement -> pass           left out

Left alone: what checks itself (`assert`, `check`), texts, annotations, decorators, logs and metrics.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
RECKONED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
ASKED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
SKIPPED: Final = (ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
HEADS: Final = ("annotation", "returns", "decorator_list", "bases", "keywords")
TOLD: Final = ("logger", "metrics")
UNTRIED: Final = ("check", "__repr__", "__str__")


@dataclass(frozen=True)
class Mutant:
    """`function`: qualified name of the outermost function that it is in, "" outside of all."""

    line: int
    function: str
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.function or '<module>'}: {self.before}  ->  {self.after}"


def mutants(source: str) -> Iterator[Mutant]:
    """All of them, one at a time: the tree of one is the next one's too."""
    tree = ast.parse(source)
    for node, function in _places(tree, "", inside=False):
        for holder, field, value, shown in _changes(node):
            kept, before = getattr(holder, field), _line(shown)
            setattr(holder, field, value)
            after = "pass" if shown is not node else _line(node)
            ast.fix_missing_locations(tree)
            yield Mutant(getattr(shown, "lineno", 0), function, before, after, tree)
            setattr(holder, field, kept)


def _line(node: ast.AST) -> str:
    """A node as text, of a compound statement its first line."""
    return ast.unparse(node).partition("\n")[0]


def _places(node: ast.AST, function: str, *, inside: bool) -> Iterator[tuple[ast.AST, str]]:
    """Nodes that may be changed, each with its function; what a function's head has lies outside of it."""
    is_head = isinstance(
        node, ast.arg | ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )
    for name, value in ast.iter_fields(node):
        if is_head and name in HEADS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, SKIPPED) or _is_told(child):
                continue
            where, within = function, inside or (name == "body" and isinstance(node, FUNCTIONS))
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)) and not within:
                if child.name in UNTRIED:
                    continue
                where = f"{function}.{child.name}".lstrip(".")
            yield child, where if within or isinstance(child, FUNCTIONS) else ""
            yield from _places(child, where, inside=within)


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, object, ast.AST]]:
    """What a node may become: whose field, which, its other value, and what is shown of it."""
    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARED:
            yield node, "ops", [COMPARED[type(op)](), *rest], node
            if rest and type(rest[0]) in COMPARED:
                yield node, "ops", [op, COMPARED[type(rest[0])](), *rest[1:]], node
        case ast.BoolOp(op=op):
            yield node, "op", ast.Or() if isinstance(op, ast.And) else ast.And(), node
        case ast.Constant(value=bool() as value):
            yield node, "value", not value, node
        case ast.Constant(value=int() as value):
            yield node, "value", value + 1, node
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in RECKONED:
            yield node, "op", RECKONED[type(op)](), node
        case ast.Call(func=ast.Name(id=name) as func) if name in ASKED:
            yield func, "id", ASKED[name], node
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "value", ast.Constant(None), node
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.Compare | ast.BoolOp
    ):
        test = node.test.operand if isinstance(node.test, ast.UnaryOp) else ast.UnaryOp(ast.Not(), node.test)
        yield node, "test", test, node
    for field in ("body", "orelse"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            for at, statement in enumerate(statements):
                if _may_go(statement):
                    yield node, field, [*statements[:at], ast.Pass(), *statements[at + 1 :]], statement


def _is_told(statement: ast.AST) -> bool:
    """A call of something of `TOLD`, whose result nobody has."""
    root = statement.value if isinstance(statement, ast.Expr) else None
    while isinstance(root, ast.Call | ast.Attribute):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in TOLD


def _may_go(statement: ast.AST) -> bool:
    """Whether what follows can be run without it."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr() if _is_told(statement):
            return False
        case ast.Expr() | ast.Raise() | ast.Continue() | ast.Break() | ast.AugAssign() | ast.Delete():
            return True
        case ast.Assign(targets=[target, *_]):
            return not isinstance(target, ast.Name | ast.Tuple)
    return False
