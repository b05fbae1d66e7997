"""Headless Chromium, with a profile of its own and nothing that calls home."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver

FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium has none for root, which CI often is; only our own pages are opened
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
DESKTOP, PHONE = (1280, 900), (390, 844)


def missing() -> str | None:
    """What keeps a browser from starting, in a sentence; None when there is one."""
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(names)} cannot be found; on Debian: apt install chromium chromium-driver" if names else None


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="pgtick-chromium-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={DESKTOP[0]},{DESKTOP[1]}"):
            options.add_argument(flag)
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # Named, so that selenium does not look for one to download.
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.set_page_load_timeout(30)
            yield driver
        finally:
            driver.quit()


def look(driver: webdriver.Chrome, size: tuple[int, int], *, dark: bool = False, zone: str = "Europe/Berlin") -> None:
    """Makes the viewport so large, the scheme light or dark, and the browser's time zone that one."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
