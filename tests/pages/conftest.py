"""A browser, a dashboard over runs made in a moment, and pages that must neither complain nor call anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from showcase import build_run

PATIENCE = 300_000  # ms until a test gives up: what is awaited ends the wait at once
# What a page has begun and not ended: questions, frames, and timers but for those of a second and more, which are for
# looking again now and then.
UNDERWAY = """{
  let begun = 0;
  const timers = new Set(), frames = new Set(), { setTimeout: later, clearTimeout: never } = window;
  const { requestAnimationFrame: paint, cancelAnimationFrame: skip } = window;
  const count = (owner, name) => {
    const work = owner[name];
    owner[name] = function (...words) { begun += 1; return work.apply(this, words).finally(() => (begun -= 1)) };
  };
  count(window, "fetch"), count(Response.prototype, "json"), count(HTMLImageElement.prototype, "decode");
  window.setTimeout = (work, wait = 0, ...words) => {
    const timer = later(() => { timers.delete(timer); work(...words) }, wait);
    if (wait < 1000) timers.add(timer);
    return timer;
  };
  window.clearTimeout = (timer) => { timers.delete(timer); never(timer) };
  window.requestAnimationFrame = (work) => {
    const frame = paint((at) => { frames.delete(frame); work(at) });
    frames.add(frame);
    return frame;
  };
  window.cancelAnimationFrame = (frame) => { frames.delete(frame); skip(frame) };
  window.settled = async () => {
    const frame = () => new Promise((done) => paint(done));
    for (let calm = 0; calm < 4; calm = begun + timers.size + frames.size ? 0 : calm + 1) await frame();
    await document.fonts.ready;
  };
}"""
LOCAL = re.compile(r"(?:http://localhost:\d+/|data:|blob:|file:)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window. Where SAFELIGHT_BROWSER is `required`, as in CI, a missing one is a failure.

    Closed with its file: other files fork, and a fork shares the event loop of Playwright, which then waits for ever.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        words = "needs Chromium: apt-get install chromium"
        pytest.fail(words) if os.environ.get("SAFELIGHT_BROWSER") == "required" else pytest.skip(words)
    reason = "needs Playwright: pip install playwright"
    sync_playwright = pytest.importorskip("playwright.sync_api", reason=reason).sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound run, another one, and a sick one with a name that would like to be markup."""
    root = tmp_path_factory.mktemp("runs")
    build_run(root / "sound")
    build_run(root / "other", rate=0.01, seed=3)
    build_run(root / "sick <img src=x onerror=alert(1)>", sick=True)
    return root


@pytest.fixture(scope="session")
def address(runs: Path) -> Iterator[str]:
    """Where the dashboard of these runs is."""
    command = [sys.executable, "-m", "safelight", "dashboard", str(runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found
        yield found[0]
        server.terminate()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a fresh window of a size and a theme; afterwards nothing may have gone wrong there."""
    contexts, wrong = [], list[str]()

    def open_page(url: str, *, width: int = 1280, height: int = 800, theme: str = "dark", **how: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, **how)
        contexts.append(context)
        context.add_init_script(UNDERWAY)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on(
            "response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append("a script of a run was executed"), dialog.dismiss()))
        page.on(
            "request", lambda asked: None if LOCAL.match(asked.url) else wrong.append(f"left the host: {asked.url}")
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
