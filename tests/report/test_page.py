"""The report in a browser: on a desktop, on a phone, in dark mode, without a network."""

import json

import pytest
from selenium.webdriver.common.by import By


@pytest.fixture(params=[1200, 390], ids=["desktop", "phone"])
def opened(browser, page, request):
    """The page in a window of some width, with no network."""
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    metrics = {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": request.param < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get_log("browser"), browser.get_log("performance")  # of earlier pages
    browser.get(page.as_uri())
    return browser


def test_the_page_logs_no_error_and_sends_no_request(opened, page):
    assert opened.get_log("browser") == []
    sent = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    addresses = {m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"}
    assert addresses <= {page.as_uri(), "data:,"}


def test_the_page_shows_the_verdict_and_every_part(opened):
    assert opened.find_element(By.TAG_NAME, "h1").text == "Not fit to serve"
    shown = opened.find_element(By.TAG_NAME, "body").text
    for text in (
        "1 of 2 models serve",
        "24.10",
        "179 of 180 images",
        "2.1 ms",
        "use less memory",
        "shared memory /dev/shm/x",
    ):
        assert text in shown
    assert len(opened.find_elements(By.CSS_SELECTOR, ".lane .bar")) == 3
    areas = opened.find_elements(By.CSS_SELECTOR, "svg rect")
    assert len(areas) == 25  # 24 packages, and the sum of all others
    assert all(area.size["width"] > 0 and area.size["height"] > 0 for area in areas)


def test_text_of_a_model_is_escaped(opened):
    assert opened.title == "Not fit to serve – envpack verify"
    assert "<script>document.title" in opened.find_element(By.TAG_NAME, "body").text
    assert opened.find_elements(By.CSS_SELECTOR, "script, img") == []


def test_nothing_is_wider_than_the_window(opened):
    wider = opened.execute_script("return [document.documentElement.scrollWidth, window.innerWidth];")
    assert wider[0] <= wider[1]


def test_text_is_readable_by_day_and_by_night(opened):
    """The contrast of text with its ground is at least 4.5, as accessibility guidelines require."""
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        ratios = opened.execute_script(CONTRASTS)
        assert len(ratios) > 30
        assert {text: ratio for text, ratio in ratios.items() if ratio < 4.5} == {}, scheme


# Text by its contrast with the nearest ground behind it that is not transparent. The canvas converts
# every notation of a color to numbers.
CONTRASTS = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function numbers(color) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data;
}
function light(color) {
  const part = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const [red, green, blue] = numbers(color);
  return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
}
function ground(element) {
  for (let node = element; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (numbers(color)[3] === 255) return color;
  }
  return 'white';
}
const found = {};
for (const element of document.querySelectorAll('main *:not(svg, svg *)')) {
  const own = [...element.childNodes].filter((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own.length) continue;
  const [ink, paper] = [light(getComputedStyle(element).color), light(ground(element))];
  found[own[0].textContent.trim().slice(0, 40)] =
    (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}
return found;
"""
