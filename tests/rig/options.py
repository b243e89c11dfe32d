"""Options: command line of the rig: the playground's, and faults, programs and recordings."""

from __future__ import annotations

from pathlib import Path

from binlog_playground.options import Options, number, parser
from tidb_binlog.late_dataclass import dataclass

DESCRIPTION = """\
The playground with tables of every kind, and on request with faults, a recorded scenario, a program that
subscribes, or rows that were there before anything was published.
"""


@dataclass(frozen=True, slots=True)
class RigOptions(Options):
    """What was asked for."""

    chaos: bool = False
    replay: Path | None = None
    kill: bool = False
    subscriber: bool = False
    load: bool = False
    kills: int = 0
    spark: str = ""


def parse(argv: list[str]) -> RigOptions:
    """Options from the command line; exits with 2 and a usage line for wrong ones."""
    rig = parser("python -m tests.rig", DESCRIPTION)
    add = rig.add_argument
    add("--chaos", action="store_true", help="kill -9 Pumps, Drainer and MariaDB at random times")
    add("--replay", type=Path, metavar="DIR", help="replay a recorded scenario instead of the demo")
    add("--kill", action="store_true", help="with --replay: kill the Drainer and a Pump on the way")
    add("--subscriber", action="store_true", help="a program subscribes too, and its tables are compared")
    add(
        "--load",
        action="store_true",
        help="begin with rows that exist: load them beside the sessions; with --chaos a running Drainer does",
    )
    add(
        "--kills",
        type=number(int, 0, 1000),
        default=0,
        metavar="N",
        help="with --load: kill the load so many times",
    )
    add(
        "--spark",
        default="",
        metavar="SIZE",
        help="a stream of binlog-spark in the Drainer's place; batches above SIZE go through Spark (8MiB, 0)",
    )
    chosen = rig.parse_args(argv)
    if chosen.kill and chosen.replay is None:
        rig.error("--kill needs --replay DIR (for the demo it is --chaos)")
    if chosen.kills and not chosen.load:
        rig.error("--kills needs --load (for the demo it is --chaos)")
    if chosen.load and (chosen.replay is not None or chosen.subscriber):
        rig.error("--load is a run of its own: without --replay and --subscriber")
    if chosen.kills and chosen.chaos:
        rig.error("--kills is for a load without --chaos, which kills, too")
    if chosen.spark and (chosen.replay is not None or chosen.load or chosen.subscriber):
        rig.error("--spark is a run of its own: without --replay, --load and --subscriber")
    return RigOptions(**vars(chosen))
