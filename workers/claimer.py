"""Claims due executions, as many as there are free slots, a little ahead of their time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from app.store import arrays, queries
from workers.execution import CLAIM, DUE_AT, JOB, TASK_KEY, TO_DO, Execution
from workers.loop import Link, read_clock
from workers.registry import Pool
from workers.scan import BEGINNING, Look, Scan, looks_at, partition_of, partitions_between
from workers.slots import Slots

LARGEST_CLAIM = 1000
FEW = 4
"""What so many jobs are to do is read along with the claim."""
GONE = (None, None, None, None)
"""Stands for what `read_jobs.sql` says of a job that is no longer there."""
RULE_SPAN = timedelta(hours=3)
"""Partitions of so short a time are named by rule; of a longer one, those that there are are asked for."""
RECHECK_S = 0.01
"""Shortest pause before another look at executions that are kept out by a run of their job."""
WAITS = 0
"""Stands for the claim of an execution that waits for a run of its job; what went back has less than that."""


class Claimer:
    """One claim a pool and tick. A full claim is followed by the next at once; an empty one by a pause."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        link: Link,
        pools: list[Slots],
        worker_id: int,
        take: Callable[[list[Execution]], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._link = link
        self._pools = pools
        self._worker_id = worker_id
        self._take = take
        self._scans = {slots.pool: Scan() for slots in pools}
        # Numbers that no other worker gives out, not even after the server forgot what it had committed last.
        self._last_claim = secrets.randbits(31) << 32
        self._unanswered: range | None = None
        self._clock_read_at = float("-inf")
        self._unsettled: set[str] = set()
        self._look_again_at = float("inf")
        self._last_keys: dict[int, str | None] = {}
        self._planning: tuple[psycopg.AsyncConnection[Any] | None, str] = (None, "")
        self._through_parent = False
        self.claim_s = 0.0
        self.starved = False
        """Whether the last tick found no free slot: the next one that gets free is worth a wake-up."""

    def lower_floors(self, due_at: float) -> None:
        """Somebody says that an execution is due at that time."""
        for scan in self._scans.values():
            scan.lower(datetime.fromtimestamp(due_at, UTC))

    def lower_floor(self, pool: Pool, priority: int, due_at: datetime) -> None:
        """One of that pool and priority waits since then."""
        self._scans[pool].lower(due_at, [priority])

    def look_at_everything(self) -> None:
        """The next claims begin at the beginning: wake-ups may have been missed."""
        for scan in self._scans.values():
            scan.lower(BEGINNING)

    @property
    def under_way(self) -> range:
        """The claims whose answer, or what their jobs are to do, has not been read yet."""
        return self._unanswered or range(0)

    async def tick(self) -> float:
        """Claims once for each pool with free slots; returns the pause until the next claims in seconds."""
        if self._unanswered is not None:
            await self._hand_back(self._unanswered)
        again = found = self.starved = False
        self._look_again_at = float("inf")
        for slots in self._pools:
            wanted = min(slots.free, LARGEST_CLAIM)
            if not slots.tasks:
                continue
            if slots.limited and wanted:
                await self._let_in(slots, wanted)
            if wanted == 0:
                self.starved = True
                continue
            claimed = await self._claim(slots, self._scans[slots.pool], wanted)
            again = again or claimed == wanted
            found = found or claimed > 0
            self.starved = self.starved or slots.free == 0
        if self._unsettled:
            await self._settle_waiting()
        await self._read_clock()
        if again and not self.starved:
            return 0.0
        # What comes due within the time claimed ahead must be seen before it is due.
        pause = min(self._settings.poll_s, self._settings.claim_ahead_s / 4) if found else self._settings.poll_s * 0.8
        return min(pause, max(RECHECK_S, self._look_again_at - self._clock.now()))

    async def _read_clock(self) -> None:
        """Once a poll at least: nobody tells when the database's clock is set, and what is due follows it.

        After the claims, so that no start waits for it.
        """
        if time.monotonic() - self._clock_read_at > self._settings.poll_s / 2:
            await read_clock(await self._link.connection(), self._clock)
            self._clock_read_at = time.monotonic()

    async def _let_in(self, slots: Slots, wanted: int) -> None:
        """Lets executions of tasks with limits be claimed, where their limits leave room."""
        connection = await self._link.connection()
        until = datetime.fromtimestamp(self._clock.now() + self._settings.claim_ahead_s, UTC)
        cursor = await connection.execute(queries.held_tasks, {"task_keys": slots.limited, "until": until})
        for (task_key,) in await cursor.fetchall():
            facts = {"task_key": task_key, "until": until, "n": wanted, "after": self._last_keys.get(task_key)}
            cursor = await connection.execute(queries.admit, facts)
            admitted, earliest, again_s, self._last_keys[task_key] = await cursor.fetchone() or (0, None, None, None)
            wanted -= admitted
            if earliest is not None:
                self._scans[slots.pool].lower(earliest)
            if again_s is not None:
                self._look_again_at = min(self._look_again_at, self._clock.now() + again_s)
            if wanted <= 0:
                break

    async def _claim(self, slots: Slots, scan: Scan, wanted: int) -> int:
        now = self._clock.now()
        started = time.monotonic()
        tasks = slots.tasks  # as they are now: others may be known by the time of the answer
        floors = scan.begin(now, look_back_s=self._settings.poll_s)
        # What went back because it is not due yet would be found again and hide the others.
        until = datetime.fromtimestamp(now + (0 if scan.held_back else self._settings.claim_ahead_s), UTC)
        connection = await self._link.connection()
        cursor = connection.cursor(binary=True)
        self._unanswered = range(self._last_claim + 1, self._last_claim + wanted + 1)
        facts = {
            "until": until.isoformat(),
            "task_keys": arrays.plain(list(tasks)),
            "worker_id": self._worker_id,
            "lease": f"{self._settings.lease_s} s",
            "few": FEW,
        }
        if self._through_parent:
            looks: list[Look] = [(None, floors)]
        else:
            looks = looks_at(floors, await self._partitions(connection, min(floors), until))
        try:
            rows = await self._look(cursor, looks, wanted, facts)
        except psycopg.errors.InsufficientPrivilege:
            if self._through_parent:
                raise
            # It has rights on the table alone, granted by hand. What was taken before this is handed back.
            self._through_parent = True
            await self._hand_back(self._unanswered)
            return wanted
        mine = [row for row in rows if row[CLAIM] > 0]
        if len(rows) > FEW and mine:
            mine = await self._with_jobs(cursor, mine)
        self._last_claim += wanted
        self._unanswered = None
        self.claim_s = time.monotonic() - started
        full = len(rows) == wanted
        scan.seen(rows, now, full=full)
        scan.held_back = len(mine) < len(rows) and self._keep_out(rows, slots) and full
        if mine:
            lease_s = self._settings.lease_s
            self._take([Execution(row, tasks[row[TASK_KEY]], started, lease_s) for row in mine])
        # After the fresh ones, the backlog's turn comes at once.
        return wanted if scan.fresh_first else len(rows)

    async def _partitions(
        self, connection: psycopg.AsyncConnection[Any], floor: datetime, until: datetime
    ) -> list[str]:
        """The partitions that may have executions due between these times, by time."""
        if until - floor > RULE_SPAN:
            found = await connection.execute(queries.pending_partitions, [partition_of(until)])
            return [name for (name,) in await found.fetchall() if name >= partition_of(floor)]
        return partitions_between(floor, until)

    async def _look(
        self, cursor: psycopg.AsyncCursor[Any], looks: list[Look], wanted: int, facts: dict[str, Any]
    ) -> list[Any]:
        """Claims from one partition after the other, until there are as many as wanted; the plans are kept.

        A plan for all partitions would be made for what statistics say of them, and a partition that was empty when
        it was analyzed may be full a second later: claims of it took seconds.
        """
        rows: list[Any] = []
        for partition, floors in looks:
            facts |= {
                "n": wanted - len(rows),
                "first_claim": self._last_claim + len(rows),
                "floor": min(floors).isoformat(),
                "floors": arrays.times(floors),
            }
            await self._plan(cursor.connection, "force_generic_plan" if partition else "force_custom_plan")
            try:
                await cursor.execute(queries.claim_due(partition), facts)
            except psycopg.errors.UndefinedTable:
                if partition is None:
                    raise
                continue  # an hour nobody made a partition for has nothing
            rows += await cursor.fetchall()
            if len(rows) == wanted:
                break
        return rows

    async def _plan(self, connection: psycopg.AsyncConnection[Any], mode: str) -> None:
        if self._planning != (connection, mode) and self._link.prepares:
            await connection.execute("select set_config('plan_cache_mode', %s, false)", [mode])
            self._planning = (connection, mode)

    async def _with_jobs(self, cursor: psycopg.AsyncCursor[Any], rows: list[Any]) -> list[Any]:
        """The rows with what their jobs are to do: parameters and trace as text, and their own retries and timeout."""
        job_ids = [row[JOB] for row in rows]
        wanted = {"job_ids": arrays.plain(job_ids), "first": min(job_ids), "last": max(job_ids)}
        await cursor.execute(queries.read_jobs, wanted)
        jobs = {row[0]: row[1:] for row in await cursor.fetchall()}
        return [row[:TO_DO] + jobs.get(row[JOB], GONE) for row in rows]

    def _keep_out(self, rows: Sequence[Any], slots: Slots) -> bool:
        """Notes executions whose job has a run that is not over; returns whether there are any that are not due yet."""
        waiting = [row for row in rows if row[CLAIM] == WAITS]
        self._unsettled.update(row[JOB] for row in waiting)
        if any(row[TASK_KEY] in slots.limited for row in waiting):
            self._look_again_at = self._clock.now()  # the places that limits had given them are free
        ahead = [row[DUE_AT] for row in rows if row[CLAIM] < WAITS]
        self._look_again_at = min([self._look_again_at, *ahead])
        return bool(ahead)

    async def _settle_waiting(self) -> None:
        connection = await self._link.connection()
        cursor = await connection.execute(queries.settle_waiting, {"job_ids": list(self._unsettled)})
        # As claims name them, in text: the driver takes no list of both kinds.
        self._unsettled = {str(job_id) for job_id in (await cursor.fetchone() or [()])[0]}
        if self._unsettled:
            self._look_again_at = self._clock.now()

    async def _hand_back(self, unanswered: range) -> None:
        """Hands back what a claim took whose answer got lost on the way: nobody runs it."""
        connection = await self._link.connection()
        cursor = await connection.execute(queries.release, {"claims": list(unanswered), "due": []})
        if count := len(await cursor.fetchall()):
            emit("claims_handed_back", executions=count)
        self._last_claim = unanswered[-1]
        self._unanswered = None
        self.look_at_everything()
