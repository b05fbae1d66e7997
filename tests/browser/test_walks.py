"""What people do with the dashboard, walked through with a real worker behind it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.browser.conftest import Site
from tests.browser.driving import Browser


@pytest.fixture(autouse=True)
def at_home(working: Site, browser: Browser) -> None:
    if browser.base != working.base:
        browser.visit(working.base)


def make(browser: Browser, task_id: str, parameters: str = "{}", when: str = "now", **fields: str) -> str:
    """Fills in the form of a new job and sends it; returns the id of the job."""
    browser.open("/ui/jobs/new")
    browser.fill("task_id", task_id)
    browser.fill("parameters", parameters)
    browser.choose("when", when)
    if any(name not in ("expression", "date", "timezone") for name in fields):
        browser.press("main form details summary")
    for name, text in fields.items():
        browser.fill(name, text)
    browser.click("Make the job")
    browser.sees("The job is made.")
    return browser.path.removeprefix("/ui/jobs/").partition("?")[0]


def test_a_job_made_by_the_form_is_seen_completed(browser: Browser) -> None:
    make(browser, "nap", '{"seconds": 0.1}')
    browser.sees("It is COMPLETED since")
    browser.press("#runs td a")
    browser.sees("Completed")
    assert "Attempt 1 started" in browser.text()


def test_the_form_says_what_is_wrong_while_it_is_filled_in(browser: Browser) -> None:
    browser.open("/ui/jobs/new")
    browser.fill("task_id", "nap")
    browser.choose("when", "cron")
    browser.fill("expression", "61 * * * *")
    browser.sees("Not yet: 1 field needs another look.")
    assert "61" in browser.texts("#fault-expression")[0]
    browser.fill("expression", "30 2 * * *")
    browser.fill("timezone", "America/New_York")
    browser.sees("Runs at 02:30 every day.")
    assert len(browser.all("#preview .coming li")) == 10
    assert "on the clock of America/New_York" in browser.text()
    browser.fill("parameters", "{")
    browser.sees("is not JSON")
    browser.click("Make the job")
    browser.sees("is not JSON")
    assert browser.attribute("[name=expression]", "value") == "30 2 * * *"


def test_choosing_a_task_begins_its_parameters_and_leaves_alone_what_was_typed(working: Site, browser: Browser) -> None:
    working.connection.execute(
        "insert into pgtick.tasks (task_id, target, parameters_schema) values ('mail', 'x', %s)",
        ['{"properties": {"to": {"type": "string"}, "cc": {"type": "array"}}, "required": ["to"]}'],
    )

    def typed() -> str:
        return browser.attribute("[name=parameters]", "value").replace("\n", "")

    browser.open("/ui/jobs/new")
    browser.fill("task_id", "mail")
    assert typed() == '{  "to": ""}'
    assert browser.texts("#hint-parameters")[0] == "to (string), required; cc (array)"
    browser.fill("task_id", "quick")
    assert typed() == "{}"
    browser.fill("parameters", '{"day": 1}')
    browser.fill("task_id", "mail")
    assert typed() == '{"day": 1}'


def test_a_date_is_taken_in_the_zone_of_the_form(browser: Browser) -> None:
    at = (datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(days=1)).replace(microsecond=0)
    make(browser, "nap", when="date", date=f"{at:%Y-%m-%dT%H:%M:%S}")
    shown = browser.attribute("#next time", "dateTime")
    assert shown == at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def test_a_recurring_job_is_paused_with_a_note_and_resumed(working: Site, browser: Browser) -> None:
    job_id = make(browser, "quick", when="cron", expression="0 0 1 1 *")
    browser.click("Pause")
    browser.sees("Pause this job?")
    browser.fill("note", "until the migration is over")
    browser.click("Pause")
    browser.sees("The job is paused.")
    assert "until the migration is over" in browser.text()
    browser.open("/ui/schedules?state=PAUSED")
    browser.sees("until the migration is over")
    browser.open(f"/ui/jobs/{job_id}")
    browser.click("Resume")
    browser.click("Resume")
    browser.sees("The job goes on with its next time.")
    query = "select paused_at from pgtick.schedules where job_id = %s"
    assert working.connection.execute(query, [job_id]).fetchone() == (None,)


def test_an_edit_shows_what_it_changes_before_it_does(working: Site, browser: Browser) -> None:
    job_id = make(browser, "quick", '{"day": 1}', when="cron", expression="0 0 1 1 *")
    browser.click("Edit")
    browser.fill("expression", "0 12 1 1 *")
    browser.fill("parameters", '{"day": 2}')
    browser.sees("0 0 1 1 * 0 12 1 1 *")
    browser.click("Save the changes")
    browser.sees("The job is changed.")
    query = "select expression, parameters from pgtick.jobs where job_id = %s"
    assert working.connection.execute(query, [job_id]).fetchone() == ("0 12 1 1 *", {"day": 2})
    browser.click("Edit")
    browser.click("Save the changes")
    browser.sees("Nothing was different")


def test_the_next_run_is_left_out(browser: Browser) -> None:
    make(browser, "quick", when="cron", expression="0 0 1 1 *")
    first = browser.attribute("#next time", "dateTime")
    browser.click("Skip next run")
    browser.click("Skip next run")
    browser.sees("That run is left out.")
    assert browser.attribute("#next time", "dateTime") != first


def test_run_now_starts_one_more(browser: Browser) -> None:
    make(browser, "quick", when="cron", expression="0 0 1 1 *")
    browser.click("Run now")
    browser.click("Run now")
    browser.sees("Another run is on its way")
    browser.sees("completed")


def test_the_error_of_a_failed_job_is_shown_and_it_is_run_again(browser: Browser) -> None:
    make(browser, "failing", '{"message": "the printer is on fire"}', max_retries="0")
    browser.sees("failed")
    browser.sees("the printer is on fire")
    browser.press("#runs td a")
    browser.sees("RuntimeError: the printer is on fire")
    browser.press("#steps details summary")
    browser.sees("Traceback")
    browser.click("Run again")
    browser.sees("Run this execution again?")
    browser.click("Run again")
    browser.sees("This is the new execution.")
    browser.sees("an earlier execution, run again")
    browser.sees("RuntimeError: the printer is on fire")


def test_a_running_execution_is_cancelled(browser: Browser) -> None:
    make(browser, "nap", '{"seconds": 60}')
    browser.sees("in progress")
    browser.press("#runs td a")
    browser.sees("Why is it not over?")
    browser.click("Cancel execution")
    browser.sees("Cancel this execution?")
    browser.click("Cancel execution")
    # Which of the two is said is a race with the worker.
    browser.until(
        lambda: any(said in browser.text() for said in ("It is being stopped", "Cancelled.")), "nothing is said of it"
    )
    browser.sees("Cancelled")


def test_a_job_is_cancelled_for_good(browser: Browser) -> None:
    make(browser, "quick", when="cron", expression="0 0 1 1 *")
    browser.click("Cancel job")
    browser.sees("There is no way back.")
    browser.click("Leave it as it is")
    browser.click("Cancel job")
    browser.click("Cancel job")
    browser.sees("Cancelled.")
    assert not browser.all("a[href$='/pause']")


def test_executions_are_filtered(browser: Browser) -> None:
    make(browser, "failing", '{"message": "to be filtered"}', max_retries="0", user_id="filtered")
    browser.sees("to be filtered")
    browser.open("/ui/executions")
    browser.fill("status", "FAILED")
    browser.fill("user_id", "filtered")
    browser.click("Filter")
    browser.sees("to be filtered")
    assert browser.texts("#rows .status") == ["failed"]
    browser.fill("error", "be filtered")
    browser.click("Filter")
    assert browser.texts("#rows .status") == ["failed"]
    browser.fill("error", "nothing like it")
    browser.click("Filter")
    browser.sees("No execution is like that")
    browser.open("/ui/jobs?schedule_type=CRON&user_id=filtered")
    browser.sees("No job is like that")
    browser.open("/ui/executions?user_id=filtered")
    browser.fill("status", "COMPLETED")
    browser.click("Filter")
    browser.sees("No execution is like that")
    browser.open("/ui/executions?task_id=no-such-task")
    browser.sees("no task 'no-such-task' is registered")


def test_a_list_stays_current_until_the_tab_is_hidden(working: Site, browser: Browser) -> None:
    browser.open("/ui/executions?user_id=live")
    browser.sees("No execution is like that")
    working.connection.execute("select pgtick.create_job('quick', user_id => 'live')")
    browser.sees("completed")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    count = (
        "window.asked = 0; const before = window.fetch; window.fetch = (...all) => (window.asked++, before(...all));"
    )
    browser.driver.execute_script(
        count + "document.querySelector('main').dataset.refresh = '0.05';" + hide % "true" + tell
    )
    asked = browser.driver.execute_async_script("setTimeout(arguments[0], 400, null)") or browser.driver.execute_script(
        "return window.asked"
    )
    assert asked == 0
    browser.driver.execute_script(hide % "false" + tell)
    browser.until(lambda: browser.driver.execute_script("return window.asked") > 0, "it asks nothing when seen again")


def test_refreshing_can_be_stopped(browser: Browser) -> None:
    browser.open("/ui/executions")
    assert browser.attribute("#live", "ariaPressed") == "true"
    browser.press("#live")
    assert browser.attribute("#live", "ariaPressed") == "false"
    browser.open("/ui/jobs")
    assert browser.attribute("#live", "ariaPressed") == "false"
    browser.press("#live")


def test_an_id_leads_to_its_page(working: Site, browser: Browser) -> None:
    row = working.connection.execute("select pgtick.create_job('quick')").fetchone()
    assert row is not None
    browser.open("/")
    browser.find("[name=id]").send_keys(str(row[0]), "\n")
    browser.until(lambda: browser.path == f"/ui/jobs/{row[0]}", "the id leads elsewhere")
    browser.sees(str(row[0]))


def test_a_worker_is_drained(working: Site, browser: Browser) -> None:
    """The last walk: nothing runs after it."""
    browser.open("/ui/workers")
    browser.click("Drain")
    browser.sees("Drain this worker?")
    browser.click("Drain")
    browser.sees("The worker finishes what it runs")
    browser.sees("No worker is alive", timeout=20)
    browser.open("/")
    browser.sees("Start a worker")
