"""The NOTIFY channels between processes and what their payloads mean."""

from __future__ import annotations

DUE = "pgtick_due"
"""An execution is due within about a second. Payload: its due_at in µs since the epoch; empty: unknown, look now."""

PLAN = "pgtick_plan"
"""A new schedule begins within about a second. No payload."""

CANCEL = "pgtick_cancel"
"""These claims are to be stopped, also while they run. Payload: claim ids, separated by commas."""

TASKS = "pgtick_tasks"
"""HTTP tasks have changed. No payload."""

REVOKE = "pgtick_revoke"
"""These claims must not start any more: their job was cancelled. What runs goes on. Payload as of CANCEL."""
