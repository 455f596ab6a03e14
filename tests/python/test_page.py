"""The gateway's page in a real browser, with the real embedded engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import browser as browsers
import pytest
from browser import Page, until
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from served import Served, serve

from cli import Cli

SECTIONS = ("Overview", "Memories", "Chat", "Users", "Keys", "Requests")
WIDE = (1280, 900)
PHONE = (390, 844)

# Would leave a trace wherever it is taken for markup.
CANARY = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\'"><svg onload=hit()>'
TRACES = (
    "return document.querySelectorAll('[onerror], [onload], img[src=x], script:not([src])').length"
    " + (window.hit ?? 0)"
)


@dataclass
class World:
    served: Served
    cli: Cli
    admin: str

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> bytes:
        status, data = self.served.request(method, path, body, key or self.admin)
        assert status == 200, data
        return data

    def add(self, text: str, **more: Any) -> None:
        self.ask("POST", "/memories", {"messages": text, **more})


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """A headless Chromium."""
    for path in (browsers.BROWSER, browsers.DRIVER):
        assert Path(path).is_file(), f"{path} is missing: run scripts/setup.sh test"
    driver = browsers.start()
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def world(module_cli: Cli) -> Iterator[World]:
    with serve(module_cli, "--auth", "on") as served:
        made = World(served, module_cli, served.hello["admin_key"])
        made.add("I moved to Lisbon in May.", user_id="ana", metadata={"topic": "home"})
        made.add("My cat is called Miso.", user_id="ana", metadata={"topic": "pets"})
        made.add("I repair old radios.", user_id="ben", run_id="talk-1")
        yield made


@pytest.fixture
def page(browser: Chrome, world: World) -> Iterator[Page]:
    """The page, opened with the admin key; the browser must have had nothing to say at the end."""
    made = Page(browser, world.served.url)
    made.screen(*WIDE)
    made.load(world.admin)
    made.complaints()
    yield made
    assert made.complaints() == []


def test_a_key_is_asked_for(page: Page, world: World) -> None:
    page.load()
    page.one("dialog[open] h2", "A key is needed")
    page.type(Keys.ESCAPE)  # which does not get around it
    page.one("dialog[open] h2", "A key is needed")
    for wrong in ("wrong", "isk-000000000000-00", "schlüssel"):
        page.fill("Key", wrong)
        page.press("Open")
        page.one("dialog[open] .problem", "not known")
    page.fill("Key", world.admin)
    page.press("Open")
    until(lambda: page.heading() == "Overview", "the overview")
    assert page.run("return localStorage.length") == 0
    assert world.admin not in page.run("return location.href + document.cookie")
    page.press("Forget the key")
    page.one("dialog[open] h2", "A key is needed")
    assert page.run("return sessionStorage.length") == 0
    unanswered = [one for one in page.complaints() if "401" not in one]
    assert unanswered == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_section_opens_and_can_be_read(page: Page, scheme: str) -> None:
    page.screen(*WIDE, scheme)
    for section in SECTIONS:
        page.open(section)
        page.one("main", section)
        assert page.driver.title == f"{section} · InferScale"
        current = page.one("#sections a[aria-current=page]")
        assert current.text == section
        if section == "Memories":
            page.one(".memories li", "Lisbon")
        if section in ("Users", "Keys", "Requests"):
            page.one("tbody tr")
        if section == "Overview":
            page.one(".tile", "3")
        ratio, text = page.worst_contrast()
        assert ratio >= 4.5, (section, text)
        assert all(one.accessible_name for one in page.focusable())


def test_colours_follow_the_system_until_they_are_chosen(page: Page) -> None:
    def ground() -> str:
        return str(page.run("return getComputedStyle(document.documentElement).backgroundColor"))

    light = ground()
    page.screen(*WIDE, "dark")
    dark = until(lambda: ground() != light and ground(), "dark colours")
    page.press("Light colours")
    assert ground() == light
    page.driver.refresh()
    page.one("#sections a")
    assert ground() == light
    page.press("Dark colours")
    assert ground() == dark


def test_a_memory_from_its_beginning_to_its_end(page: Page) -> None:
    page.open("Memories")
    page.press("Add a memory")
    page.fill("Text", "I am allergic to peanuts.")
    page.fill("User", "cleo")
    page.fill("Speaker", "Cleo")
    page.fill("Metadata", "not JSON")
    page.press("Add")
    page.one("dialog[open] .problem", "not JSON")
    page.fill("Metadata", '{"topic": "health", "sure": true}')
    page.press("Add")
    page.one(".memories li", "peanuts")
    page.fill("User", "cleo")
    page.fill("Search", "What must she not eat?")
    page.press("Show")
    found = page.one(".memories li", "cosine")
    assert "topic health" in found.text
    page.press("Edit", ".memories")
    page.fill("Text", "I am allergic to walnuts.")
    page.fill("Metadata", '{"topic": "food"}')
    page.press("Save")
    changed = page.one(".memories li", "walnuts")
    assert "version 2" in changed.text
    assert "topic food" in changed.text
    assert "sure" not in changed.text
    page.press("History", ".memories")
    events = page.one("dialog[open] table").text
    assert "ADD" in events
    assert "UPDATE" in events
    assert "peanuts" in events
    page.close_dialog()

    page.open("Chat")
    page.fill("User", "cleo")
    page.fill("Tokens at most", "8")
    page.fill("Question", "What is Cleo allergic to?")
    page.type(Keys.ENTER)
    used = page.one(".used", "walnuts")
    assert "score" in used.text
    assert page.all(".badge", "injected from") or page.all(".badge", "computed")
    assert "First token after" in page.one(".measured").text
    page.press("Ask again: text, computed")
    both = page.one(".comparison").text
    assert both.count(" ms") + both.count(" s\n") >= 2
    assert "0 injected" in both

    page.open("Requests")
    page.fill("Show", "answers")
    rows = until(lambda: page.all("tbody tr", "/v1/chat/completions"), "the answers")
    modes = [row.find_element(By.CSS_SELECTOR, "td[data-label=Memory]").text for row in rows]
    assert modes == ["text", "kv"]
    rows[0].find_element(By.TAG_NAME, "summary").click()
    rows[0].find_element(By.CSS_SELECTOR, ".ids button").click()
    page.one("dialog[open] .said", "walnuts")
    page.close_dialog()
    page.open("Overview")
    page.one(".legend", "of 1 answer")
    assert page.all(".plot svg[role=img]")

    page.open("Memories")
    page.press("Delete", ".memories")
    page.one("dialog[open] blockquote", "walnuts")
    page.press("Cancel")
    page.press("Delete", ".memories")
    page.press("Delete")
    erased = page.one("dialog[open] .pairs").text
    assert "Texts\n1" in erased
    page.close_dialog()
    page.gone(".memories li", "walnuts")


def test_pages_filters_and_the_end_of_a_user(page: Page, world: World) -> None:
    for number in range(25):
        world.add(f"Dora counts to {number}.", user_id="dora", metadata={"n": number})
    page.open("Users")
    page.fill("Name", "dor")
    row = page.one("tbody tr", "dora")
    assert "25" in row.text
    row.find_element(By.LINK_TEXT, "Memories").click()
    page.one("[role=status]", "1 to 20 of 25")
    page.press("Older")
    page.one("[role=status]", "21 to 25 of 25")
    assert len(page.all(".memories > li")) == 5
    page.one("summary", "Filter").click()
    page.fill("Metadata field", "n")
    page.fill("Condition", "gte")
    page.fill("Value", "23")
    page.press("Show")
    page.one("[role=status]", "1 to 2 of 2")
    page.open("Users")
    page.press("Delete all of user dora")
    page.one("dialog[open]", "25 memories")
    page.press("Delete all")
    page.one("dialog[open] .pairs", "Texts\n25")
    page.close_dialog()
    page.gone("tbody tr", "dora")


def test_keys_are_made_shown_once_and_ended(page: Page, world: World) -> None:
    page.open("Keys")
    page.press("Make a key")
    page.fill("Tenant", "acme")
    page.fill("Access", "read")
    page.fill("Name", "reader")
    page.press("Make")
    shown = str(page.one("dialog[open] input[readonly]").get_attribute("value"))
    page.close_dialog()
    key = shown.split("-")[1]
    assert "reader" in page.one("tbody tr", key).text
    assert shown not in page.run("return document.documentElement.outerHTML")
    assert world.served.request("GET", "/v1/ping", key=shown)[0] == 200
    page.press(f"Rotate key {key}")
    page.press("Rotate")
    second = str(page.one("dialog[open] input[readonly]").get_attribute("value"))
    page.close_dialog()
    assert world.served.request("GET", "/v1/ping", key=shown)[0] == 401

    # What a key that reads sees: its tenant, and nothing to press that it may not.
    page.load(second)
    assert page.all("#who", "acme")
    page.one(".tile", "of acme")
    assert not page.all("#tiers:not([hidden])")
    page.open("Memories")
    page.one(".memories", "No memories here.")
    assert not page.all("main button", "Add")
    page.open("Keys")
    page.one("main", "Keys are for those who have an admin key.")
    page.open("Requests")
    page.one("tbody tr, .empty")
    assert not page.all("tbody", "default")

    page.load(world.admin)
    page.open("Keys")
    page.press(f"Revoke key {key}")
    page.press("Revoke")
    page.one("tbody tr", "revoked")
    assert world.served.request("GET", "/v1/ping", key=second)[0] == 401


def test_what_users_write_is_never_markup(page: Page, world: World) -> None:
    body = {"user_id": CANARY, "agent_id": CANARY, "run_id": CANARY, "metadata": {CANARY: CANARY}}
    message = {"role": "user", "name": CANARY, "content": CANARY}
    world.ask("POST", "/memories", {"messages": [message], **body})
    spec = {"tenant": CANARY, "name": CANARY, "access": "admin"}
    world.ask("POST", "/v1/keys", spec)
    page.open("Memories")
    page.fill("User", CANARY)
    page.fill("Search", CANARY)
    page.press("Show")
    page.one("main [role=status]", "nearest")
    assert page.one(".memories .said").text == CANARY
    for button in ("Edit", "History", "Delete"):
        page.press(button, ".memories")
        page.one("dialog[open]")
        assert page.run(TRACES) == 0
        page.close_dialog()
    page.press("Add a memory")
    for label in ("Text", "Speaker", "Agent", "Run"):
        page.fill(label, CANARY)
    page.fill("Metadata", CANARY)  # which is no JSON, and said to be none
    page.press("Add")
    page.one("dialog[open] .problem", "JSON")
    page.close_dialog()
    page.open("Chat")
    page.fill("User", CANARY)
    page.fill("Tokens at most", "2")
    page.fill("Question", CANARY)
    page.press("Ask")
    page.one(".used .facts", CANARY)
    assert page.one(".question").text == CANARY
    page.one(".measured")
    page.open("Users")
    page.press(f"Delete all of user {CANARY}")
    page.one("dialog[open] h2", CANARY)
    assert page.run(TRACES) == 0
    page.close_dialog()
    page.open("Keys")
    page.one("tbody td", CANARY)
    page.open("Requests")
    page.one("tbody tr")
    page.open("Overview")
    page.one(".tile")
    assert page.run(TRACES) == 0


def test_a_narrow_screen_needs_no_scrolling_to_the_side(page: Page, world: World) -> None:
    world.add("w" * 120, user_id="u" * 60, metadata={"m" * 60: "n" * 60})
    page.screen(*PHONE)
    page.load(world.admin)
    for section in SECTIONS:
        page.open(section)
        page.one("tbody tr, .tile, .memories li, textarea")
        assert page.too_wide() == [], section
    page.open("Memories")
    page.fill("User", "u" * 60)
    page.press("Show")
    page.one("[role=status]", "1 to 1 of 1")
    for button in ("Edit", "History", "Delete"):
        page.press(button, ".memories")
        page.one("dialog[open]")
        assert page.too_wide() == [], button
        box = page.one("dialog[open]").rect
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE[0]
        page.close_dialog()
    page.open("Chat")
    page.fill("User", "u" * 60)
    page.fill("Tokens at most", "2")
    page.fill("Question", "q" * 80)
    page.press("Ask")
    page.one(".measured")
    assert page.too_wide() == []


def test_the_keyboard_reaches_everything(page: Page, world: World) -> None:
    for section in SECTIONS:
        page.load(world.admin)
        if section != "Overview":
            page.open(section)
        page.one("tbody tr, .tile, .memories li, textarea")
        page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        wanted = page.focusable()
        reached, unseen = page.tab_through(len(wanted) + 3)
        assert [one.accessible_name for one in wanted if one not in reached] == [], section
        assert unseen == [], section

    # And does everything, a whole memory long.
    page.load(world.admin)
    page.type(Keys.TAB)
    assert page.driver.switch_to.active_element.text == "Skip to the content"
    page.type(Keys.ENTER)
    assert page.driver.switch_to.active_element.get_attribute("id") == "main"
    page.driver.find_element(By.LINK_TEXT, "Memories").send_keys(Keys.ENTER)
    until(lambda: page.driver.switch_to.active_element.text == "Memories", "the section's heading")
    page.type(Keys.TAB)
    assert page.driver.switch_to.active_element.accessible_name == "Add a memory"
    page.type(Keys.SPACE)
    page.one("dialog[open]")
    page.type(Keys.ESCAPE)
    page.gone("dialog[open]")
    assert page.driver.switch_to.active_element.accessible_name == "Add a memory"
    page.type(Keys.ENTER)
    page.one("dialog[open]")
    page.fill("Text", "Typed without a mouse.")
    page.type(Keys.TAB)
    page.type(Keys.TAB)
    page.type("eve")
    page.field("User").send_keys(Keys.ENTER)
    page.gone("dialog[open]")
    page.one(".memories li", "Typed without a mouse.")


def test_where_no_key_is_needed(browser: Chrome, cli: Cli) -> None:
    with serve(cli) as served:
        page = Page(browser, served.url)
        page.screen(*WIDE)
        page.load()
        page.one("#who", "no key needed")
        page.one("#tiers", "In host memory")
        page.open("Keys")
        page.one("main", "inferscale keys create --access admin")
        page.open("Requests")
        page.one("tbody tr, .empty")
        page.open("Chat")
        page.fill("Tokens at most", "2")
        page.fill("Question", "Hello?")
        page.press("Ask")
        page.one(".used", "No memory was asked for.")
        assert page.complaints() == []
    page.press("New dialogue")
    page.fill("Question", "Is anybody there?")
    page.press("Ask")
    page.one(".note", "The gateway does not answer.")
    page.one(".turn", "Not finished")
    page.complaints()
