"""A browser that opens pages."""

import contextlib
import shutil
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
IN_A_CONTAINER = ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"]


@contextlib.contextmanager
def browser(**options):
    """A page in Chromium without a window, of this machine or of playwright, and all that it requests, without errors.

    Skips the test where there is neither.
    """
    asked, errors = [], []
    api = pytest.importorskip("playwright.sync_api", reason="NO BROWSER: no page was opened; install playwright")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip(f"NO BROWSER: no page was opened; have one of {', '.join(BROWSERS)}")
        shown = playwright.chromium.launch(executable_path=found, args=IN_A_CONTAINER).new_page(**options)
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("pageerror", lambda error: errors.append(error))
        yield shown, asked
    assert not errors
