"""The tables of a page in a browser: sorted, filtered, by mouse and by keyboard, wide and narrow, light and dark."""

import shutil

import pandas as pd
import pytest

from redditbias_repro.show.html import Link, html_page, section, table_block

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver, of Debian")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
WORDS = ["b", "a", "c", "e", "d", "g", "f", "i", "h"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    table = pd.DataFrame({"term": WORDS, "influence": [1000.5, -2.0, None, 3.0, 0.5, 7.0, 20.0, -1.0, 4.0]})
    table["record"] = [Link(f"{w}.json", f"records/{w}.json") for w in WORDS]
    few = pd.DataFrame({"x": [1, 2]})
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(
        html_page("Page", [section("Part", [table_block(table, "Terms", "Said."), table_block(few, "Few")])])
    )
    return path.as_uri()


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["wide", "narrow"])
def browser(request, page, tmp_path):
    from selenium import webdriver

    (width, scheme), options = request.param, webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path}", f"--window-size={width},900"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    colour = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", colour)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(page)
    yield driver
    driver.quit()


def rows(browser):
    shown = "[...document.querySelector('table').tBodies[0].rows].filter(r => !r.hidden)"
    return browser.execute_script(f"return {shown}.map(r => r.cells[0].innerText)")


def test_sorted_and_filtered(browser):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    assert rows(browser) == WORDS and len(browser.find_elements(By.CSS_SELECTOR, "input[type=search]")) == 1
    term, influence, _ = browser.find_elements(By.CSS_SELECTOR, "thead button")
    term.click()
    assert rows(browser) == sorted(WORDS)
    influence.click()
    assert rows(browser) == ["a", "i", "d", "e", "h", "g", "f", "b", "c"]  # what has no number last
    influence.send_keys(Keys.ENTER)
    assert rows(browser) == ["b", "f", "g", "h", "e", "d", "i", "a", "c"]
    sort = [
        th.get_attribute("aria-sort") for th in browser.find_elements(By.CSS_SELECTOR, "table:first-of-type thead th")
    ]
    assert sort[:3] == [None, "descending", None]
    field = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    assert field.get_attribute("aria-label") == "Filter: Terms"
    field.send_keys("f.json")
    assert rows(browser) == ["f"] and "1 of 9 rows" in browser.find_element(By.TAG_NAME, "output").text
    field.clear()
    field.send_keys(" ")
    assert len(rows(browser)) == 9
    link = browser.find_element(By.LINK_TEXT, "f.json")
    assert link.get_attribute("href").endswith("/records/f.json")


def test_nothing_is_wider_than_the_screen_and_nothing_is_refused(browser):
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert not [line for line in browser.get_log("browser") if "favicon" not in line["message"]]
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground in ("rgb(253, 253, 252)", "rgb(21, 24, 28)")


def test_by_keyboard_alone(browser):
    """Tab leads to headings and to the field; each shows where it is."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    found = []
    for _ in range(14):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        at = browser.switch_to.active_element
        found.append((at.tag_name, at.get_attribute("type")))
        if at.tag_name == "button":
            assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", at) == "solid"
    assert ("button", "button") in found and ("input", "search") in found
    assert browser.find_elements(By.CSS_SELECTOR, "table")
