"""A real browser, and a verdict with all parts of a report."""

import os
import shutil

import pytest
from selenium import webdriver

from envpack.verification.report import write_report
from tests.verdicts import full_verdict


@pytest.fixture(scope="session")
def browser():
    program, driver = (
        next(filter(None, map(shutil.which, names)), None)
        for names in (
            ("chromium", "chromium-browser", "google-chrome"),
            ("chromedriver",),
        )
    )
    if not program or not driver:
        missing = "Chromium and its driver (Debian: chromium, chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(f"the report cannot be tested in a browser: {missing} missing")
        pytest.skip(f"needs {missing}")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture(scope="session")
def verdict():
    return full_verdict()


@pytest.fixture(scope="session")
def page(verdict, tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report(verdict, file)
    return file
