"""Posts jobs through the API all the time, and keeps the ids of those that were acknowledged."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.processes import DIRECT

BATCH_S = 0.25
RECURRING = ("* * * * * *", "*/2 * * * * *", "*/5 * * * * *", "@every 3s", "*/10 * * * * *", "*/20 * * * * *")


class Load:
    """`per_second` one-off jobs a second, due within 4 s, and some recurring ones."""

    def __init__(self, port: int, per_second: int, seed: int) -> None:
        self._api = f"http://127.0.0.1:{port}"
        self._per_second = per_second
        self._random = random.Random(seed)
        self._over = threading.Event()
        self.acknowledged: dict[str, str] = {}
        """job_id → task_id of one-off jobs."""
        self.recurring: list[str] = []
        self.longest_wait_s = 0.0
        self.refused = 0
        self._poison_at = time.monotonic() + 10
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._request("GET", "/healthz", None, {})
        jobs = [{"task_id": "recurring", "schedule": expression} for expression in RECURRING]
        self.recurring = self._post(jobs)
        self._thread.start()

    def stop(self) -> None:
        """Ends the load and cancels the recurring jobs."""
        self._over.set()
        self._thread.join(120)
        for job_id in self.recurring:
            self._request("DELETE", f"/jobs/{job_id}", None, {})

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            jobs = [self._one() for _ in range(int(self._per_second * BATCH_S))]
            if time.monotonic() > self._poison_at:
                jobs.append({"task_id": "poison"})
                self._poison_at = time.monotonic() + 40
            for job, job_id in zip(jobs, self._post(jobs), strict=True):
                self.acknowledged[job_id] = job["task_id"]
            due += BATCH_S  # after an outage the backlog is posted, too
            self._over.wait(max(0.0, due - time.monotonic()))

    def _one(self) -> dict[str, Any]:
        at = datetime.now(UTC) + timedelta(seconds=self._random.uniform(0, 4))
        kind = self._random.random()
        job: dict[str, Any] = {"task_id": "quick", "schedule": at.isoformat()}
        if kind < 0.004:
            job |= {"task_id": "slow", "parameters": {"seconds": self._random.uniform(1, 8)}}
        elif kind < 0.012:
            job |= {"task_id": "thread", "parameters": {"seconds": self._random.uniform(0.1, 1)}}
        elif kind < 0.016:
            job |= {"task_id": "child", "parameters": {"seconds": self._random.uniform(0.1, 1)}}
        elif kind < 0.026:
            job |= {"task_id": "failing"}
        elif kind < 0.036:
            job |= {"task_id": "flaky"}
        elif kind < 0.5:
            del job["schedule"]  # now
        return job

    def _post(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Until it is acknowledged; the key makes sure that trying again makes no second ones."""
        answer = self._request("POST", "/jobs/batch", jobs, {"Idempotency-Key": str(uuid.uuid4())})
        return list(answer["job_ids"])

    def _request(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        all_headers = {"Content-Type": "application/json", **headers}
        started = time.monotonic()
        while True:
            request = urllib.request.Request(self._api + path, data, all_headers, method=method)
            try:
                with DIRECT.open(request, timeout=30) as answer:
                    self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - started)
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                with error:
                    text = error.read().decode(errors="replace")
                if error.code not in (500, 502, 503, 504):
                    raise RuntimeError(f"{method} {path}: {error.code} {text}") from None
                if error.code == 500:
                    print(f"  the API answered 500: {text[:300]}", flush=True)
                self.refused += 1
            except OSError:
                self.refused += 1
            if time.monotonic() - started > 120:
                raise RuntimeError(f"{method} {path}: no acknowledgement within 120 s")
            time.sleep(0.2)
