"""What holds on every page: no fault of accessibility, nothing against the security policy, no script of a user's."""

from __future__ import annotations

import pytest

from tests.browser import chromium, demo, screens
from tests.browser.conftest import Site
from tests.browser.driving import Browser
from tests.browser.serving import serving

PAGES = sorted(screens.pages(dict.fromkeys(("failed", "running", "late", "recurring", "failing", "paused"), "{}")))

CUT = """
    const left = (e) => e.getBoundingClientRect().left;
    return [...document.querySelectorAll('svg text')].filter((text) => left(text) < left(text.closest('svg')) - 1.5)
        .map((text) => text.textContent)
"""
"""Labels of plots that begin outside of them."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_fits_a_phone_and_breaks_no_policy(busy: Site, browser: Browser, name: str) -> None:
    if browser.base != busy.base:
        browser.visit(busy.base)
    demo.beat(busy.connection)
    browser.complaints()
    for size, dark in ((chromium.DESKTOP, False), (chromium.PHONE, True)):
        chromium.look(browser.driver, size, dark=dark)
        browser.open(screens.pages(busy.ids)[name])
        assert browser.faults() == []
        assert browser.driver.execute_script(CUT) == []
        wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= size[0], "the page is wider than the screen"
    # An answer of 404 is a complaint, also that of the icon, which the API has none of.
    assert browser.complaints() == [] or name in ("error", "docs")
    chromium.look(browser.driver, chromium.DESKTOP)


def test_everything_is_reached_by_keyboard(busy: Site, browser: Browser) -> None:
    if browser.base != busy.base:
        browser.visit(busy.base)
    browser.open("/ui/executions")
    script = """
        const hidden = (e) => e.closest('[hidden]') || e.type === 'hidden' || getComputedStyle(e).display === 'none';
        return [...document.querySelectorAll('a, button, input, select, summary')]
            .filter((e) => !hidden(e) && e.tabIndex < 0 && !e.closest('svg')).map((e) => e.outerHTML)
    """
    assert browser.driver.execute_script(script) == []
    browser.driver.execute_script("document.body.focus()")
    browser.driver.switch_to.active_element.send_keys("\ue004")  # Tab
    assert browser.driver.switch_to.active_element.text == "To the content"


def test_the_judge_of_accessibility_is_awake(busy: Site, browser: Browser) -> None:
    if browser.base != busy.base:
        browser.visit(busy.base)
    browser.open("/ui/executions")
    break_it = "const field = document.querySelector('[name=id]'); field.ariaLabel = null; field.placeholder = ''"
    browser.driver.execute_script(break_it + "; document.querySelector('h1').style.color = '#fefefe'")
    assert {fault.split(" ")[0] for fault in browser.faults()} == {"label", "color-contrast"}


def test_the_fields_of_a_filter_stand_in_one_row_and_are_equally_high(busy: Site, browser: Browser) -> None:
    if browser.base != busy.base:
        browser.visit(busy.base)
    chromium.look(browser.driver, chromium.DESKTOP)
    browser.open("/ui/executions?status=FAILED")
    fields = "document.querySelectorAll('.filters select, .filters input:not([type=checkbox]), .filters .button')"
    look = f"return [...{fields}].map((e) => e.getBoundingClientRect()).map((box) => [box.top, box.height])"
    assert len({(round(top), round(height)) for top, height in browser.driver.execute_script(look)}) == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_without_its_database_is_red_and_not_live(browser: Browser, dark: bool) -> None:
    with serving("host=127.0.0.1 port=1 dbname=none") as base:
        browser.visit(base)
        chromium.look(browser.driver, chromium.DESKTOP, dark=dark)
        browser.sees("The database does not answer")
        browser.sees("Trying again")
        assert browser.faults() == []
        title = "getComputedStyle(document.querySelector('h1')).color"
        dot = "getComputedStyle(document.querySelector('#live'), '::before').backgroundColor"
        assert browser.driver.execute_script(f"return {title} === {dot}")
    chromium.look(browser.driver, chromium.DESKTOP)
    browser.complaints()
