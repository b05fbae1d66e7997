"""A browser as tests speak to it: find by what people see, wait for what shows, and fail on anything in the console."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser import chromium

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
TIMEOUT_S = 15

# Marks the page, and says whether pressing that leaves it.
MARK = """
const pressed = arguments[0];
window.isOld = true;
return pressed.matches('a[href]') || pressed.type === 'submit' && pressed.form.checkValidity();
"""
IS_ANOTHER = "return !window.isOld && document.readyState === 'complete'"
SET = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.base = ""
        chromium.look(driver, chromium.DESKTOP)

    def visit(self, base: str) -> None:
        """Opens another site, without cookies of the last one; its first page learns the browser's zone."""
        self.base = base
        chromium.look(self.driver, chromium.DESKTOP)
        self.driver.get(base + "/ui/login")
        self.driver.delete_all_cookies()
        self.driver.get(base + "/")
        self.sees("Times in Europe/Berlin")

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    @property
    def path(self) -> str:
        return str(self.driver.current_url).removeprefix(self.base)

    def text(self) -> str:
        return self.driver.find_element(By.TAG_NAME, "body").text

    def sees(self, text: str, timeout: float = TIMEOUT_S) -> None:
        """Waits until the page shows a text, by its own refreshing."""
        self.until(lambda: text in self.text(), f"{text!r} does not show", timeout)

    def find(self, css: str) -> WebElement:
        found: WebElement = WebDriverWait(self.driver, TIMEOUT_S).until(
            lambda driver: driver.find_element(By.CSS_SELECTOR, css)
        )
        return found

    def all(self, css: str) -> list[WebElement]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, css))

    def texts(self, css: str) -> list[str]:
        """What is written there, all at one moment: pages are refreshed."""
        script = "return [...document.querySelectorAll(arguments[0])].map(each => each.innerText.trim())"
        return list(self.driver.execute_script(script, css))

    def attribute(self, css: str, name: str) -> str:
        """An attribute of the first that is found, as it now is."""
        script = "return document.querySelector(arguments[0])[arguments[1]]"
        self.find(css)
        return str(self.driver.execute_script(script, css, name))

    def click(self, label: str, within: str = "main") -> None:
        """Presses the link or the button of that name."""
        self.press(f"//{within}//*[self::a or self::button][normalize-space()='{label}']", By.XPATH)

    def press(self, path: str, by: str = By.CSS_SELECTOR) -> None:
        """Presses what is found there, again where a refresh came in between.

        Where that leads to another page, or to this one anew, it is there when this returns: the browser starts for it
        only after the click, and until then shows what may be taken for the answer.
        """

        def pressed() -> bool:
            found = self.driver.find_element(by, path)
            leads = self.driver.execute_script(MARK, found)
            found.click()
            if leads:
                WebDriverWait(self.driver, TIMEOUT_S / 3, 0.02, (WebDriverException,)).until(
                    lambda driver: driver.execute_script(IS_ANOTHER)
                )
            return True

        self.until(pressed, f"pressing {path!r} leads nowhere")

    def fill(self, name: str, text: str) -> None:
        """Types into a field; dates and choices are set."""

        def filled() -> bool:
            field = self.driver.find_element(By.CSS_SELECTOR, f"main [name={name}]")
            if field.tag_name == "select" or field.get_attribute("type") == "datetime-local":
                self.driver.execute_script(SET, field, text)
            else:
                field.clear()
                field.send_keys(text)
            return True

        self.until(filled, f"there is no {name!r} to fill")

    def choose(self, name: str, value: str) -> None:
        self.press(f"main [name={name}][value={value}]")

    def faults(self) -> list[str]:
        """What axe-core finds serious or critical on this page, a line each."""
        self.driver.execute_script(AXE)
        script = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done, done)"
        found: dict[str, Any] = self.driver.execute_async_script(script)
        return [
            f"{fault['id']} ({fault['impact']}): {fault['help']}: {node['html'][:160]} {node.get('failureSummary', '')}"
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"][:3]
        ]

    def complaints(self) -> list[str]:
        """What the console has said since it was asked last; violations of the security policy among it."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def until(self, condition: Callable[[], Any], message: str, timeout: float = TIMEOUT_S) -> None:
        """Waits until something holds; what goes wrong meanwhile, as parts are replaced, is tried again."""
        try:
            WebDriverWait(self.driver, timeout, 0.1, (WebDriverException,)).until(lambda _: condition())
        except Exception as error:
            raise AssertionError(f"{message} at {self.path}: {self.text()[:2000]}") from error
