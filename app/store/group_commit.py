"""Group commit: what concurrent requests want written goes to the database together.

A request that finds nobody writing writes at once, alone. Those that come meanwhile wait; when the write is done, one
of them writes for all of them. So a lone request waits for nobody, no thread is kept for it, and under load one
statement and one commit serve as many requests as came in during the one before, and in a moment after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from app.store.pool import Unavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


GATHER_S = 0.001
"""Where requests come together, so long is waited for those that the last commit has set free."""
TOGETHER_S = 0.01
"""Requests come together so soon after one commit served several of them."""


class _Ticket(Generic[Item, Answer]):
    __slots__ = ("answer", "done", "item", "next", "turn")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.turn = threading.Lock()
        self.turn.acquire()
        self.done = False
        self.next: _Ticket[Item, Answer] | None = None
        self.answer: Answer | BaseException | None = None


class GroupCommit(Generic[Item, Answer]):
    """`write` takes items and returns an answer or an error for each, after their commit."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Sequence[Answer | BaseException]], *, limit: int = 500
    ) -> None:
        self._write = write
        self._limit = limit
        self._lock = threading.Lock()
        self._waiting: list[_Ticket[Item, Answer]] = []
        self._writing = False
        self._together_until = 0.0

    def submit(self, item: Item) -> Answer:
        """The answer for this item once it is committed; raises its error."""
        ticket: _Ticket[Item, Answer] = _Ticket(item)
        with self._lock:
            self._waiting.append(ticket)
            mine = not self._writing
            self._writing = True
        if not mine:
            ticket.turn.acquire()  # answered, or next to write
        if not ticket.done:
            self._lead(ticket)
        if ticket.next is not None:
            # One wakes the next: woken all at once they would only fight for the interpreter.
            ticket.next.turn.release()
        if isinstance(ticket.answer, BaseException):
            raise ticket.answer
        return cast(Answer, ticket.answer)

    def _lead(self, leader: _Ticket[Item, Answer]) -> None:
        if time.monotonic() < self._together_until:
            time.sleep(GATHER_S)
        with self._lock:
            group = self._waiting[: self._limit]
            del self._waiting[: self._limit]
        failure: BaseException | None = None
        try:
            answers = self._write([ticket.item for ticket in group])
            if len(answers) != len(group):  # some would wait for ever
                raise RuntimeError(f"{len(answers)} answers for {len(group)} items")
        except BaseException as error:
            failure, answers = error, [error] * len(group)
        if len(group) > 1:
            self._together_until = time.monotonic() + TOGETHER_S
        with self._lock:
            if isinstance(failure, Unavailable):
                # Whoever waited through this has waited long enough: one outage answers all of them.
                answers = [failure] * (len(group) + len(self._waiting))
                group += self._waiting
                self._waiting = []
            successor = self._waiting[0] if self._waiting else None
            self._writing = successor is not None
        if successor is not None:
            successor.turn.release()
        last = leader
        for ticket, answer in zip(group, answers, strict=True):
            ticket.answer, ticket.done = answer, True
            if ticket is not leader:
                last.next = last = ticket
