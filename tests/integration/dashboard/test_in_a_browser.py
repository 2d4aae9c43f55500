"""The dashboard in a real browser: every page, light and dark, wide and narrow, by keyboard.

Screenshots are kept in build/screenshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import axe_playwright_python
import pytest

from perago.dashboard.server import Dashboard
from support import dashboard_world
from support.browsers import needs_chromium, opened_browser
from support.dashboard_world import HOSTILE, DashboardWorld
from support.memory_world import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs_chromium]
RULES = (Path(__file__).parents[2] / "support" / "accessibility.js").read_text(encoding="utf-8")
SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
WIDE, PHONE = {"width": 1200, "height": 860}, {"width": 375, "height": 760}
Scheme = Literal["light", "dark"]


@dataclass
class Visit:
    """A page of a world's dashboard, and everything that went wrong in it."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        answer = self.page.goto(f"{self.url}{path}", wait_until="load")
        assert answer is not None
        # Also a page that says that there is nothing must be a good page.
        assert answer.status < 500

    def shoot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as opened:
        yield opened


@contextmanager
def visit(
    browser: Browser,
    made: DashboardWorld,
    *,
    scheme: Scheme = "light",
    size: dict[str, int] | None = None,
) -> Iterator[Visit]:
    with Dashboard(made.sources, port=0) as dashboard:
        context = browser.new_context(color_scheme=scheme, viewport=size or WIDE)  # type: ignore[arg-type]
        context.set_default_timeout(20_000)
        page = context.new_page()
        found = Visit(page, dashboard.url.partition("/?")[0])
        page.on("console", lambda message: _note(found, message))
        page.on("pageerror", lambda error: found.problems.append(str(error)))
        page.on("requestfailed", lambda request: _note_request(found, request))
        page.goto(dashboard.url, wait_until="load")
        assert "token" not in page.url
        yield found
        context.close()
        assert found.problems == []


def _note(found: Visit, message: ConsoleMessage) -> None:
    if message.type in {"error", "warning"}:
        found.problems.append(message.text)


def _note_request(found: Visit, request: Request) -> None:
    # Leaving a page ends its stream, and what was still being loaded.
    if request.failure != "net::ERR_ABORTED":
        found.problems.append(f"{request.failure}: {request.url}")


def paths(made: DashboardWorld) -> dict[str, str]:
    """Every page of a world, by a name for its screenshot."""
    head = made.world.head.id
    found = {
        "overview": "/",
        "repositories": "/repositories",
        "branch": f"/repositories/{REPOSITORY}",
        "commit": f"/repositories/{REPOSITORY}/commits/{head}",
        "publish-times": "/publish-times",
        "errors": "/errors",
        "not-found": "/workflows/none",
    }
    for number, workflow in enumerate(made.conductor.workflows.values(), 1):
        found[f"workflow-{number}"] = f"/workflows/{workflow.workflow_id}"
        found[f"attempt-{number}"] = f"/attempts/{workflow.tasks[-1].task_id}"
    return found


@pytest.mark.parametrize("name", ["empty", "busy", "broken"])
@pytest.mark.parametrize(
    ("scheme", "size"), [("light", WIDE), ("dark", WIDE), ("light", PHONE), ("dark", PHONE)]
)
def test_every_page_is_whole(
    browser: Browser, name: str, scheme: Scheme, size: dict[str, int]
) -> None:
    made: DashboardWorld = getattr(dashboard_world, name)()
    width = "phone" if size is PHONE else "wide"
    with visit(browser, made, scheme=scheme, size=size) as found:
        for page, path in paths(made).items():
            expected_error = page == "not-found"
            found.go(path)
            found.shoot(f"{name}-{page}-{scheme}-{width}")
            if expected_error:
                # The browser itself writes a line for every status of 400 and more.
                found.problems = [it for it in found.problems if "404" not in it]
            overflow = found.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overflow <= 0, f"{page} is {overflow} px too wide"
            assert_accessible(found.page)


@pytest.mark.parametrize("name", ["empty", "busy", "broken"])
def test_axe_finds_no_problem(browser: Browser, name: str) -> None:
    axe = (Path(str(axe_playwright_python.__file__)).parent / "axe.min.js").read_text(
        encoding="utf-8"
    )
    made: DashboardWorld = getattr(dashboard_world, name)()
    with visit(browser, made) as found:
        for page, path in paths(made).items():
            found.go(path)
            found.page.evaluate(axe)
            violations = found.page.evaluate("axe.run()")["violations"]
            assert [(page, it["id"], it["nodes"][0]["html"]) for it in violations] == []
        found.problems = [it for it in found.problems if "404" not in it]


def assert_accessible(page: Page) -> None:
    """Check the rules of WCAG AA that a program can check: names, landmarks, order, contrast."""
    assert page.evaluate(RULES) == []


def test_an_open_page_follows_what_happens(browser: Browser) -> None:
    made = dashboard_world.empty()
    with visit(browser, made) as found:
        found.page.get_by_text("No attempt is running.").wait_for()
        made.add(made.running("join_orders"), name="orders")
        found.page.get_by_role("cell", name="join_orders").wait_for()
        assert found.page.locator("#state-text").inner_text() == "live"


def test_focus_and_opened_details_stay_while_the_page_changes(browser: Browser) -> None:
    made = dashboard_world.busy()
    with visit(browser, made) as found:
        found.go(f"/repositories/{REPOSITORY}")
        opened = found.page.locator("details").last
        opened.locator("summary").click()
        made.world.commit({"notes/second.md": b"2"})
        found.page.get_by_text("input of").first.wait_for()
        found.page.wait_for_function("document.querySelectorAll('.graph > li').length > 5")
        assert found.page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_the_keyboard_reaches_the_content_and_every_link(browser: Browser) -> None:
    made = dashboard_world.busy()
    with visit(browser, made) as found:
        found.page.keyboard.press("Tab")
        assert found.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        found.page.keyboard.press("Enter")
        assert found.page.evaluate("document.activeElement.id") == "main"
        found.page.keyboard.press("Tab")
        assert found.page.evaluate("document.activeElement.tagName") == "A"


def test_a_hostile_text_is_text(browser: Browser) -> None:
    made = dashboard_world.broken()
    with visit(browser, made) as found:
        found.page.on("dialog", lambda dialog: found.problems.append(dialog.message))
        found.page.get_by_text(HOSTILE).first.wait_for()
        assert found.page.locator("main script").count() == 0
