"""binlog-spark index: write the indexes that segments of an archive lack, the Go Drainer's too.

Drives  the archive's directory, segments of another machine by a copy here; no Spark
Never   touches a segment, or the index of one that is being written
Tests   tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Final

from drainer.formats import binlog_file, segment_index
from drainer.places.place import READ, WRITE, Place
from drainer.reading.archive.files.segments import Segment, survey
from drainer.sink.file.segments import ArchiveSegments
from drainer.spark import arguments
from drainer.spark.driver import TaskProgress
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.observe import show

HELP: Final = """\
write the indexes that segments lack, so that ranges and tables are found without reading

    binlog-spark index --archive DIR

For archives of db-type = "file", our Drainer's and the Go Drainer's; other readers ignore the directory
`index` that it fills. The newest segment is passed over, since a Drainer may write it; --newest takes it too.
Damaged segments get none; the exit code is 6 then.
"""
_CHUNK: Final = 8 << 20
_HEADINGS: Final = ("file", "bytes", "index")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive", "--from", dest="archive", required=True, metavar="DIR", help="a directory or a URI"
    )
    arguments.add_file_system(parser)
    parser.add_argument("--newest", action="store_true", help="also the newest: no Drainer writes here")
    arguments.add_output(parser)


def run(args: argparse.Namespace) -> int:
    location = arguments.place(args, args.archive, "--archive", READ | WRITE)
    lines: list[tuple[str, int, str]] = []
    code = 0
    with TaskProgress("index") as progress:
        segments = survey(location, "pb").segments
        for segment in segments if args.newest else segments[:-1]:
            progress.detail(segment.name)
            try:
                lines.append((segment.name, segment.size, _indexed(location, segment)))
            except Corruption as error:
                lines.append((segment.name, segment.size, str(error)))
                code = error.exit_code
            except OSError as error:
                raise BinlogError(
                    f"{location.path_of(segment.name)}: {error.strerror}", hint="check disk and permissions"
                ) from None
    if args.output == arguments.JSON:
        show.print_json([dict(zip(_HEADINGS, line, strict=True)) for line in lines])
    else:
        show.print_table(f"indexes of {args.archive}", _HEADINGS, lines)
    return code


def _indexed(location: Place, segment: Segment) -> str:
    """What became of it. Raises `Corruption`."""
    if segment.is_covered:
        return "there"
    path = location.local
    if path is not None:
        archive = ArchiveSegments(path)
        archive.store(segment.name, archive.described(segment.index, segment.name).to_json())
        return "written"
    name = segment_index.file_name(f"{segment_index.DIRECTORY}/{binlog_file.plain_name(segment.name)}")
    with tempfile.TemporaryDirectory() as directory, location.open_packed(segment.name) as source:
        archive = ArchiveSegments(directory)
        with open(os.path.join(directory, segment.name), "wb") as copy:
            while data := source.read(copy.tell(), _CHUNK):
                copy.write(data)
        if index := location.content(name):
            archive.store(segment.name, index)
        location.put(name, archive.described(segment.index, segment.name).to_json())
    return "written"
