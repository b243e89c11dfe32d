"""binlogctl status: a cluster on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.registry import DRAINERS, PUMPS
from deploy.ctl import connection, look, moment, node_table, show
from deploy.ctl.command_line import Call
from deploy.ctl.commands import DONE, JSON, NOT_WELL, SOON
from deploy.ctl.overview import ERROR, STAGES, WARNING, NodeLine, Overview, Trouble

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

EXIT_CODES: Final = {"": DONE, WARNING: SOON, ERROR: NOT_WELL}
_PUMP: Final = ("pump", "address", "state", "alive", "sorted up to", "behind", "doing")
_DRAINER: Final = (
    "drainer",
    "address",
    "state",
    "alive",
    "applied up to",
    "behind",
    *(name.replace("_", " ") for name in STAGES),
    "doing",
)


async def run(call: Call) -> int:
    """Print it once."""
    async with connection.registry(call.settings) as registry:
        seen = await look.look(registry, call.settings.tls)
    print_once(seen, call.output)
    return EXIT_CODES[seen.worst]


def print_once(seen: Overview, output: str) -> None:
    if output == JSON:
        show.print_json(look.document(seen))
    else:
        show.console().print(page(seen))


def page(seen: Overview) -> Group:
    """Tables of pumps and drainers, and what is wrong."""
    from rich.console import Group
    from rich.text import Text

    pumps = [_row(line) for line in seen.nodes if line.kind == PUMPS]
    drainers = [_row(line) for line in seen.nodes if line.kind == DRAINERS]
    parts: list[RenderableType] = [
        show.table(f"{len(pumps)} pumps at {moment.local(seen.now_ts)}", _PUMP, pumps),
        show.table(f"{len(drainers)} drainers", _DRAINER, drainers),
    ]
    if not seen.troubles:
        parts.append(Text("all is well", style="green"))
    parts += [
        Text(_told(trouble), style="red" if trouble.severity == ERROR else "yellow")
        for trouble in seen.troubles
    ]
    return Group(*parts)


def _told(trouble: Trouble) -> str:
    hint = f" ({trouble.hint})" if trouble.hint else ""
    return f"{trouble.severity}: {trouble.node} {trouble.text}{hint}"


def _row(line: NodeLine) -> list[str]:
    alive = node_table.alive(line.state, line.alive)
    alive = alive if line.answers or alive in ("no", "dead") else f"{alive}, no answer"
    behind = "" if line.behind_s is None else show.span(line.behind_s)
    position = moment.local(line.position_ts) if line.position_ts else ""
    stages = [show.span(line.stages_s[name]) if name in line.stages_s else "" for name in STAGES]
    more = stages if line.kind == DRAINERS else []
    return [line.node_id, line.address, line.state, alive, position, behind, *more, line.doing]


def lines(seen: Overview) -> list[str]:
    """The same as plain lines."""
    told = []
    for line in seen.nodes:
        behind = "position unknown" if line.behind_s is None else f"{show.span(line.behind_s)} behind"
        stages = " ".join(f"{name}={value:.1f}s" for name, value in line.stages_s.items())
        answers = "" if line.answers else ", does not answer"
        parts = (f"{line.kind[:-1]} {line.node_id}: {line.state}{answers}", behind, stages, line.doing)
        told.append(", ".join(part for part in parts if part))
    return told + [_told(trouble) for trouble in seen.troubles]
