"""Definitions in a DDL job."""

from __future__ import annotations

from typing import Any

from common.ddl_job import DdlJob, action_name
from common.errors import Corruption


def partition_ids(document: dict[str, Any]) -> set[int]:
    """Of a table's definition."""
    partition = document.get("partition") or {}
    return {int(definition["id"]) for definition in partition.get("definitions") or ()}


def kind_of(document: dict[str, Any]) -> str:
    """`table`, `view` or `sequence`."""
    if document.get("view") is not None:
        return "view"
    return "sequence" if document.get("sequence") is not None else "table"


def required(document: dict[str, Any] | None, job: DdlJob) -> dict[str, Any]:
    """The definition that a job must have. Raises `Corruption`."""
    if document is None:
        raise Corruption(
            f"DDL job {job.id} ({action_name(job.action)}) has no definition of what it changed",
            hint="compare the job with `ADMIN SHOW DDL JOBS` of the upstream",
        )
    return document
