"""Application writer: sessions of a program with its own database, whose commits decide what is published.

Drives  `application` (the database), `pumpclient.Publisher` with its outcome table
Holds   the model is what the database holds, and so what a replica must come to
Never   commits there what is not prepared in the stream
Tests   tests/rig/workload/test_application.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from drainer.mysql.errors import CommitUnknown, TransientError
from pumpclient.errors import TransactionLost
from pumpclient.publish.publisher import Publisher
from pumpclient.publish.transaction import Transaction
from tests.rig.workload.application import Application, ApplicationSession
from tests.rig.workload.evolution import Ddl
from tests.rig.workload.model import Model
from tests.rig.workload.session import LEASE_TTL_S, Writer
from tests.rig.workload.statistics import RigStatistics
from tests.rig.workload.workload import Ending, Plan
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.upstream.standalone import StandaloneUpstream

LOST_TTL_S: Final = 1.0
PUBLISHED_FIRST: Final = (ActionType.DROP_TABLE, ActionType.DROP_COLUMN, ActionType.DROP_INDEX)
"""What removes is published before it is done, what adds after it."""
TTL_S: Final = {
    Ending.COMMIT: LEASE_TTL_S,
    Ending.ROLL_BACK: LEASE_TTL_S,
    Ending.ABANDON: LOST_TTL_S,
    Ending.LOSE_COMMIT: LOST_TTL_S,
}
"""Nobody asks about a prepared transaction, and the stream waits for it, before its lease has run out."""


class ApplicationWriter(Writer):
    """What all sessions of one program share. Its publisher was opened with the application's outcomes."""

    def __init__(
        self,
        application: Application,
        publisher: Publisher,
        upstream: StandaloneUpstream,
        model: Model,
        statistics: RigStatistics,
        ids: Iterator[int],
        schema_version: int,
    ) -> None:
        super().__init__(publisher, upstream, model, statistics, ids, schema_version)
        self._application = application

    async def run_ddl(self, ddl: Ddl) -> None:
        """Run it in the database and publish it, both while no timestamp of a snapshot is drawn."""
        session = await asyncio.to_thread(self._application.keep_definition)
        try:
            if ddl.kind in PUBLISHED_FIRST:
                await super().run_ddl(ddl)
                await asyncio.to_thread(self._application.alter, ddl.query)
            else:
                await asyncio.to_thread(self._application.alter, ddl.query)
                await super().run_ddl(ddl)
        finally:
            session.close()

    async def _run(self, plan: Plan) -> bool:
        transaction = await self._begin(plan, TTL_S[plan.ending])
        session = await asyncio.to_thread(self._application.take)
        try:
            return await self._decide(session, transaction, plan)
        except CommitUnknown:
            raise
        except TransientError:  # a deadlock: the program would run it again
            session.close()
            await transaction.roll_back()
            self.statistics.refused += 1
            return False
        except TransactionLost:
            session.close()
            self.statistics.lost_by_lease += 1
            return False
        except BaseException:
            session.close()
            raise
        finally:
            self._application.give(session)

    async def _decide(self, session: ApplicationSession, transaction: Transaction, plan: Plan) -> bool:
        changes, start_ts = plan.transaction.changes, transaction.start_ts
        await asyncio.to_thread(self._application.change, session, changes, start_ts)
        if plan.ending is Ending.ROLL_BACK:
            await asyncio.to_thread(session.rollback)
            await transaction.roll_back()
            self.statistics.rolled_back += 1
            return False
        commit_ts = await transaction.prepare()
        if plan.ending is Ending.ABANDON:  # as a program that dies here: its database is asked
            session.close()
            await transaction.abandon()
            self.statistics.abandoned += 1
            return False
        await asyncio.to_thread(session.commit)
        if plan.ending is Ending.LOSE_COMMIT:
            await transaction.abandon()
        else:
            await transaction.commit()
        self.last_commit_ts = max(self.last_commit_ts, commit_ts)
        return True
