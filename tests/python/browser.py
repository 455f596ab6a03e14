"""A real browser on the gateway's page, used as a person does: by labels and buttons' names."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")

BROWSER = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
WAIT_S = 60  # of which a sanitizer's build on a busy machine needs some

# What Tab must reach: all that is shown and can be used.
FOCUSABLE = """
const top = document.querySelector('dialog[open]') ?? document;
return [...top.querySelectorAll('a[href], button, input, select, textarea, summary')].filter(
    (one) => !one.disabled && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true}));
"""

WATCH_FOCUS = """
window.reached = [];
window.unseen = [];
document.addEventListener('focusin', ({target}) => {
  window.reached.push(target);
  if (getComputedStyle(target).outlineStyle === 'none') window.unseen.push(target.outerHTML);
});
"""

# The text with the least contrast to what is behind it: [ratio, text] (WCAG 2.2's formula).
CONTRAST = """
const numbers = (color) => {
  const found = color.match(/[\\d.]+/g).map(Number);
  return color.startsWith('color(') ? found.map((n, i) => (i < 3 ? n * 255 : n)) : found;
};
const light = ([r, g, b]) => {
  const part = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const color = numbers(getComputedStyle(one).backgroundColor);
    if (color.length === 3 || color[3] === 1) return color;
  }
  return [255, 255, 255];
};
let worst = [21, ''];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  const element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
  if (element.closest(':disabled') || element.closest('.hidden, .skip')) continue;
  const style = getComputedStyle(element);
  const front = numbers(element.closest('svg') ? style.fill : style.color);
  const [a, b] = [light(front), light(behind(element))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < worst[0]) worst = [ratio, node.data.trim().slice(0, 60)];
}
return worst;
"""


def start() -> Chrome:
    options = ChromeOptions()
    options.binary_location = BROWSER
    for word in (
        "--headless=new",
        "--no-sandbox",  # there is none for root
        "--disable-dev-shm-usage",  # which is small in containers
        "--disable-gpu",
        "--lang=en-GB",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Chrome(options=options, service=Service(DRIVER))


def until(probe: Callable[[], T], what: str) -> T:
    """What the probe says as soon as it is true of anything."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if got := probe():
                return got
        except StaleElementReferenceException:
            pass  # drawn anew in between
        except WebDriverException as error:
            if "aborted by navigation" not in (error.msg or ""):
                raise
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.03)


class Page:
    """The page in the browser's one tab. Names are those that a person reads, or hears."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def screen(self, width: int, height: int, scheme: str = "light") -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def load(self, key: str | None = None) -> None:
        """Begins anew, as in a new tab; with a key that was typed there before, if one is given."""
        self.driver.get(self.url + "/page/icon.svg")
        self.run("sessionStorage.clear(); localStorage.clear();")
        if key is not None:
            self.run("sessionStorage.setItem('inferscale-key', arguments[0])", key)
        self.driver.get(self.url + "/")
        wanted = "#sections a" if key is not None else "#sections a, dialog[open]"
        until(lambda: self.all(wanted), "the page")

    def open(self, section: str) -> None:
        self.driver.find_element(By.LINK_TEXT, section).click()
        until(lambda: self.heading() == section, section)

    def heading(self) -> str:
        return str(self.run("return document.querySelector('main h1')?.textContent ?? ''"))

    def all(self, selector: str, text: str | None = None) -> list[WebElement]:
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [one for one in found if text is None or text in one.text]

    def one(self, selector: str, text: str | None = None) -> WebElement:
        return until(lambda: self.all(selector, text), f"{selector} with {text!r}")[0]

    def gone(self, selector: str, text: str | None = None) -> None:
        until(lambda: not self.all(selector, text), f"no {selector} with {text!r}")

    def field(self, label: str) -> WebElement:
        """The control of a label, in the dialog if one is open."""
        found = self.run(
            """
            const top = document.querySelector('dialog[open]') ?? document;
            const label = [...top.querySelectorAll('label')].find(
                (one) => one.textContent.trim() === arguments[0]);
            return label?.control ?? null;
            """,
            label,
        )
        assert found is not None, f"no field {label!r}"
        assert isinstance(found, WebElement)
        return found

    def fill(self, label: str, text: str) -> None:
        control = self.field(label)
        if control.tag_name == "select":
            self.run(
                "arguments[0].value = arguments[1];"
                "arguments[0].dispatchEvent(new Event('change', {bubbles: true}))",
                control,
                text,
            )
            return
        control.clear()
        control.send_keys(text)

    def press(self, name: str, within: str = "") -> None:
        """A button, by its name; in the dialog if one is open."""
        top = "dialog[open] " if self.all("dialog[open]") else within + " "

        def click() -> bool:
            for one in self.all(top + "button"):
                if one.accessible_name == name and one.is_enabled():
                    self.run("arguments[0].scrollIntoView({block: 'center'})", one)
                    one.click()
                    return True
            return False

        until(click, f"the button {name!r}")

    def type(self, *keys: str) -> None:
        """To whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def close_dialog(self) -> None:
        self.type(Keys.ESCAPE)
        self.gone("dialog[open]")

    def complaints(self) -> list[str]:
        """What the browser's console says since it was last asked."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        # A browser asks for this beside a file that is no page, as load() opens one.
        return [str(one["message"]) for one in entries]

    def too_wide(self) -> list[str]:
        """What sticks out at the right, so that the page would have to be scrolled."""
        return list(
            self.run(
                """
                const width = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth <= width) return [];
                return [...document.querySelectorAll('body *')].filter(
                    (one) => one.getBoundingClientRect().right > width + 1).map(
                    (one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`);
                """
            )
        )

    def worst_contrast(self) -> tuple[float, str]:
        ratio, text = self.run(CONTRAST)
        return float(ratio), str(text)

    def focusable(self) -> list[WebElement]:
        return list(self.run(FOCUSABLE))

    def tab_through(self, times: int) -> tuple[list[WebElement], list[str]]:
        """What Tab reaches, and what of it does not show that it has the focus."""
        self.run(WATCH_FOCUS)
        ActionChains(self.driver).send_keys(Keys.TAB * times).perform()
        reached, unseen = self.run("return [window.reached, window.unseen]")
        return list(reached), list(unseen)
