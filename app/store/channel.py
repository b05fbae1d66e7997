"""The NOTIFY channels between processes and what their payloads mean."""

from __future__ import annotations

DUE = "pgtick_due"
"""A job is due within about a second. Payload: its due_at in µs since the epoch; empty: unknown, look now."""

CANCEL = "pgtick_cancel"
"""Cancellation of running executions was asked for. Payload: claim ids, separated by commas."""
