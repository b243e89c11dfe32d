"""Explore larger clusters than a test does.

python -m tests.model                                    every bound of `LARGE`
python -m tests.model --bounds 2,1,1 draws=2 slow=1      so many transactions, Pumps online, new ones
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.model.bounds import LARGE
from tests.model.explorer import Explorer, Found
from tests.model.joining import Bounds, Left, World


def main() -> int:
    """The exit code: 1 if something is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("--bounds", metavar="TXNS,ONLINE,NEW")
    parser.add_argument("--finds", action="store_true", help="a reader whom nobody tells of Pumps")
    parser.add_argument("--again", action="store_true", help="new Pumps have been there before")
    parser.add_argument("left", nargs="*", metavar="NAME=TIMES", help=", ".join(Left._fields))
    options = parser.parse_args()
    tried = LARGE
    if options.bounds:
        txns, online, new = map(int, options.bounds.split(","))
        left = Left(**{name: int(times) for name, times in (given.split("=") for given in options.left)})
        tried = (Bounds(txns, online, new, left, options.finds, options.again),)
    for bounds in tried:
        explorer, began_s = Explorer(World(bounds)), time.process_time()
        try:
            states = explorer.run()
        except Found as found:
            print(f"{bounds}\nBROKEN {found}")
            return 1
        print(
            f"{bounds}\n{states} states, {explorer.steps} steps, {time.process_time() - began_s:.0f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
