"""Fuzz by name, or all, for so long each; see the package."""

from __future__ import annotations

import argparse
import time

from tests.fuzz import campaign
from tests.fuzz.catalog import FUZZERS, found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("names", nargs="*", choices=[*FUZZERS, []], metavar="NAME", help=", ".join(FUZZERS))
    parser.add_argument("--seconds", type=float, default=600.0, help="of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ends", action="store_true", help="show what came of the inputs")
    options = parser.parse_args()
    for name in options.names or FUZZERS:
        end_s = time.monotonic() + options.seconds
        tally = campaign.run(FUZZERS[name], options.seed, lambda _: time.monotonic() < end_s, found(name))  # noqa: B023
        print(f"{name}: {tally}", flush=True)
        for end, count in tally.ends.most_common() if options.ends else ():
            print(f"  {count:,} {end}")


if __name__ == "__main__":
    main()
