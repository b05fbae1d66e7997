"""The Grafana dashboard and the alert rules parse, and name only metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.metrics import METRICS, Page

FOLDER = Path(__file__).parents[2] / "app" / "monitoring"
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
SERIES = {name + suffix for name, kind in METRICS.items() for suffix in SUFFIXES.get(kind.type, ("",))}

DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
EXPRESSIONS = {
    **{f"panel {p['title']} {t['refId']}": t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]},
    **{f"alert {rule['alert']}": rule["expr"] for rule in RULES},
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_an_expression_names_metrics_that_exist_and_their_labels(expression: str) -> None:
    named = set(re.findall(r"\bpgtick_\w+", expression))
    assert named
    assert named <= SERIES
    labels = {"le", "instance"}.union(*(METRICS[re.sub(r"_(bucket|count|sum)$", "", name)].labels for name in named))
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= labels
    assert expression.count("(") == expression.count(")")


def test_every_metric_but_the_counts_of_events_is_on_the_dashboard_or_alerted_on() -> None:
    seen = {
        re.sub(r"_(bucket|count|sum)$", "", n) for e in EXPRESSIONS.values() for n in re.findall(r"\bpgtick_\w+", e)
    }
    assert set(METRICS) - seen == {"pgtick_completed_total", "pgtick_events_total"}


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & places, panel["title"]
        assert max(x for x, _ in taken) < 24
        places |= taken


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "warn"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]


def test_what_a_pause_or_a_limit_holds_back_pages_nobody() -> None:
    assert "and max by (queue) (pgtick_queue_late) > 0" in EXPRESSIONS["alert PgtickLate"]


def test_a_page_is_what_prometheus_reads() -> None:
    page = Page()
    page.set("pgtick_starts_total", 7, 'a "task"')
    page.summarize("pgtick_run_seconds", 7, 3.5, "t")
    page.distribute("pgtick_lateness_seconds", [0.001, 2], [5, 1, 1], 9.0, "t")
    families = {family.name: family for family in text_string_to_metric_families(page.text().decode())}
    assert families["pgtick_starts"].samples[0].labels == {"task": 'a "task"'}
    buckets = [s.value for s in families["pgtick_lateness_seconds"].samples if s.name.endswith("_bucket")]
    assert buckets == [5, 6, 7]
