"""Takes pictures of all pages, on a desk and on a phone, light and dark: `make screenshots`, or PAGES=overview,job.

PAGES=readme takes the three that the README shows.
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

import psycopg
from selenium import webdriver

from tests.browser import chromium, demo
from tests.browser.serving import serving
from tests.support.databases import migrate, running_server

FOLDER = Path(__file__).parent / "screenshots"
README = Path(__file__).parent / "readme"
SHOWN = {"overview": "light", "job": "dark", "schedules": "light"}
"""What the README shows, and in which scheme."""
MOST_TALL = 2400


def pages(ids: dict[str, str]) -> dict[str, str]:
    """Every page by name, with something worth seeing on it."""
    return {
        "overview": "/",
        "executions": "/ui/executions",
        "executions-failed": "/ui/executions?status=FAILED",
        "execution-failed": f"/ui/executions/{ids['failed']}",
        "execution-running": f"/ui/executions/{ids['running']}",
        "execution-late": f"/ui/executions/{ids['late']}",
        "jobs": "/ui/jobs",
        "job": f"/ui/jobs/{ids['recurring']}",
        "job-failing": f"/ui/jobs/{ids['failing']}",
        "job-paused": f"/ui/jobs/{ids['paused']}",
        "job-form": "/ui/jobs/new?task_id=nightly_report&when=cron&expression=30+2+*+*+*&timezone=America/New_York",
        "job-cancel": f"/ui/jobs/{ids['recurring']}/cancel",
        "schedules": "/ui/schedules",
        "tasks": "/ui/tasks",
        "workers": "/ui/workers",
        "database": "/ui/database",
        "login": "/ui/login",
        "nothing": "/ui/jobs?status=SKIPPED",
        "error": "/ui/jobs/01a22b40-bc8d-7a70-9b34-932b6c6eb555",
        "docs": "/docs",
    }


def take(driver: webdriver.Chrome, base: str, name: str, address: str) -> None:
    for device, size in (("desktop", chromium.DESKTOP), ("phone", chromium.PHONE)):
        for scheme in ("light", "dark"):
            chromium.look(driver, size, dark=scheme == "dark")
            driver.get(base + address)
            if name == "job-form":
                driver.execute_script(
                    "document.getElementById('expression').dispatchEvent(new Event('input', {bubbles: true}))"
                )
                driver.implicitly_wait(3)
                driver.find_elements("css selector", "#preview .coming")
            tall = driver.execute_script("return document.documentElement.scrollHeight")
            save(driver, FOLDER / f"{name}-{device}-{scheme}.png", size[0], min(max(tall, size[1]), MOST_TALL))
    print(f"  {name}", flush=True)


def save(driver: webdriver.Chrome, path: Path, width: int, height: int) -> None:
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(shot["data"]))


def take_for_readme(driver: webdriver.Chrome, base: str, ids: dict[str, str]) -> None:
    README.mkdir(exist_ok=True)
    for name, scheme in SHOWN.items():
        chromium.look(driver, (1120, 780), dark=scheme == "dark")
        driver.get(base + pages(ids)[name])
        save(driver, README / f"{name}.png", 1120, 780)


def main() -> None:
    if reason := chromium.missing():
        sys.exit(f"error: {reason}")
    FOLDER.mkdir(exist_ok=True)
    wanted = os.environ.get("PAGES", "")
    with running_server() as server, server.database() as dsn:
        migrate(dsn)
        with (
            psycopg.connect(dsn, autocommit=True) as connection,
            serving(dsn) as base,
            chromium.chromium() as driver,
        ):
            ids = demo.fill(connection)
            # The first page tells the server the browser's zone.
            chromium.look(driver, chromium.DESKTOP)
            driver.get(base)
            if wanted == "readme":
                take_for_readme(driver, base, ids)
            for name, address in pages(ids).items():
                if not wanted or name in wanted.split(","):
                    demo.beat(connection)
                    take(driver, base, name, address)
    print(f"Screenshots are in {FOLDER}")


if __name__ == "__main__":
    main()
