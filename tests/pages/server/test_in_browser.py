"""The pages in a real browser: what a person sees and can do, live and afterwards, by mouse and by keyboard."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from showcase import build_run

from safelight.diagnosis.rules import RULES
from safelight.pages.data.runs import find_runs
from safelight.pages.report.html import write_report
from safelight.record.smoothing import exponential_mean
from safelight.record.store import RecordWriter
from safelight.run import RunFolder

PATIENCE = 300_000  # ms, as that of the pages
Open = Callable[..., Any]
RULES_BY_CODE = {rule.code: rule for rule in RULES}
TINY = ("model.widths=16", "model.norm_groups=8", "model.layers=1", "model.attention=", "model.conditional=false",
        "sample.steps=2", "sample.count=4", "train.preflight=off", "ema.snapshots=2")  # fmt: skip


DRAWN = ("Loss", "Loss by noise level", "Gradient flow by part", "Gradient norm", "Learning rate", "Throughput",
         "Memory", "Distance from real images", "Loss on the fixed set", "Diversity of samples", "Skill")  # fmt: skip
TOLD = ("Error", "LRA001", "Since step 120, over since step 180", "99 % sure", "below 2", "loss.spike: it lasts",
        "Lower the learning rate.", "optimizer.lr: 0.0001", "The loss diverged")  # fmt: skip
# Read from a copy: a canvas that is read often is painted without the graphics card.
PIXELS = """c => { const copy = document.createElement('canvas'); [copy.width, copy.height] = [c.width, c.height];
    const context = copy.getContext('2d', { willReadFrequently: true }); context.drawImage(c, 0, 0);
    const d = context.getImageData(0, 0, c.width, c.height).data; let n = 0;
    for (let i = 0; i < d.length; i += 4) if (%s) n++; return n }"""
PAINTED, RED = PIXELS % "d[i+3]", PIXELS % "d[i] == 255 && d[i+1] == 125 && d[i+2] == 114"


def id_of(runs: Path, name: str) -> str:
    return next(found.id for found in find_runs([runs]) if found.name.startswith(name))


def last_step(page: Any, title: str) -> int:
    """As the words beside a chart tell it, which say the same as its lines."""
    chart = page.locator("figure.chart", has=page.get_by_role("heading", name=title, exact=True))
    found = re.search(r"to ([\d,]+):", chart.locator("p.hidden-text").text_content() or "")
    return int(found[1].replace(",", "")) if found else -1


def painted(page: Any, title: str) -> int:
    """Pixels of a chart's canvas that are not empty."""
    chart = page.locator("figure.chart", has=page.get_by_role("heading", name=title, exact=True))
    return chart.locator(".plot canvas").first.evaluate(PAINTED)


def settle(page: Any) -> None:
    """Until all that the page has begun has come to its end: answers, pictures, paintings, words beside charts."""
    page.evaluate("window.settled()")


def at_rest(page: Any, place: Any) -> str:
    """The words there, once the answers that may change them have come."""
    settle(page)
    return place.inner_text()


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE / 1000
    while not holds():
        assert time.monotonic() < until, "It never came to hold."
        page.wait_for_timeout(20)


def reached(page: Any) -> str:
    """How far the charts go, as the bar above them says."""
    return page.locator(".toolbar .range").inner_text()


def test_a_real_training_run_appears_and_grows_without_a_reload(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/")
    page.get_by_text("sound").first.wait_for()
    page.evaluate("window.loadedOnce = true")
    command = [sys.executable, "-m", "safelight", "train", "--run", str(runs / "grows"), "--steps", "100000",
               "--batch-size", "8", "--sample-every", "60", "--evaluate-every", "0", "--no-dashboard"]  # fmt: skip
    settings = [word for each in TINY for word in ("--set", each)]
    with subprocess.Popen([*command, *settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        try:
            page.get_by_text("grows", exact=True).click()
            slider = page.locator(".print input.stage")
            wait_until(page, lambda: last_step(page, "Loss") > 0)
            before, stages = last_step(page, "Loss"), int(slider.get_attribute("max") or 0)
            wait_until(page, lambda: last_step(page, "Loss") > before + 50)
            wait_until(page, lambda: int(slider.get_attribute("max") or 0) > stages + 1)
            wait_until(page, lambda: page.locator(".run-title .state").inner_text() == "Training")
            assert page.evaluate("window.loadedOnce")
        finally:
            training.kill()


def test_the_list_is_searched_and_ordered(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/")
    names = page.locator(".run-name")
    page.get_by_text("sound").first.wait_for()
    settle(page)
    everything = set(names.all_inner_texts())
    page.get_by_label("Find runs").fill("sick")
    assert [name.split()[0] for name in names.all_inner_texts()] == ["sick"]
    page.get_by_label("Find runs").fill("no such words")
    assert page.get_by_text("No run has these words.").is_visible()
    page.get_by_label("Find runs").fill("")
    page.get_by_role("radio", name="name").check()
    assert names.all_inner_texts() == sorted(everything)
    assert page.locator(".run-steps").first.inner_text().count("loss") == 1


def test_where_no_stream_comes_through_the_server_is_asked(runs: Path, address: str, open_page: Open) -> None:
    path = build_run(runs / "asked", sick=True)
    page = open_page(f"{address}#/")
    page.add_init_script("delete window.EventSource")
    page.goto(f"{address}?again#/run/{id_of(runs, 'asked')}")
    wait_until(page, lambda: last_step(page, "Loss") == 299)
    record = RecordWriter(path / "record.sqlite", from_step=300, say=print)
    for step in range(300, 340):
        record.add(step, {"loss/mean": math.nan if step == 320 else 0.2, "gradient/norm": 1.0})
    record.close()
    wait_until(page, lambda: last_step(page, "Loss") == 339)
    assert "2 readings are not finite" in (
        page.locator("figure.chart .overlay").first.get_attribute("aria-label") or ""
    )


def test_every_chart_draws_and_says_what_it_shows(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sound')}", height=2600)
    wait_until(page, lambda: last_step(page, "Loss") == 299)
    for title in DRAWN:
        wait_until(page, lambda title=title: painted(page, title) > 500)
    figure = page.locator("figure.chart").first
    assert "lowest" in (figure.locator(".overlay").get_attribute("aria-label") or "")
    figure.locator("summary").click()
    figure.locator("tbody tr").nth(14).wait_for()


@pytest.mark.parametrize("kind", ["dashboard", "report"])
def test_skill_and_distance_are_drawn_beside_what_they_are_measured_by(
    runs: Path, address: str, open_page: Open, tmp_path: Path, kind: str
) -> None:
    place = f"{address}#/run/{id_of(runs, 'sound')}"
    if kind == "report":
        write_report(RunFolder(runs / "sound"), tmp_path / "report.html")
        place = (tmp_path / "report.html").as_uri()
    page = open_page(place, height=2600)
    wait_until(page, lambda: last_step(page, "Skill") == 299)
    chart = page.locator("figure.chart", has=page.get_by_role("heading", name="Skill", exact=True))
    words = chart.locator("p.hidden-text").text_content() or ""
    assert words.endswith("no shape learnt: 0. linear filter: 1. floor (memorised): 2.5.")
    distance = page.locator(
        "figure.chart", has=page.get_by_role("heading", name="Distance from real images", exact=True)
    )
    wait_until(page, lambda: last_step(page, "Distance from real images") == 299)
    assert (distance.locator("p.hidden-text").text_content() or "").endswith("real images: 0.25. target: 0.5.")
    levels = page.locator("figure.chart", has=page.get_by_role("heading", name="Loss by noise level", exact=True))
    levels.get_by_role("radio", name="skill").check(force=True)
    wait_until(page, lambda: "skill 0 or less" in levels.locator(".legend").inner_text())
    settle(page)
    levels.locator("summary").click()
    wait_until(page, lambda: levels.locator("tbody tr").count() > 2)
    rows = levels.locator("tbody tr").all_inner_texts()
    assert [row.split()[-1] for row in (rows[0], rows[1], rows[-1])] == ["–", "1.363", "0.09088"]
    assert painted(page, "Loss by noise level") > 500
    levels.get_by_role("radio", name="value").check(force=True)
    wait_until(page, lambda: "skill" not in levels.locator(".legend").inner_text())


def test_nan_and_refused_updates_are_drawn(runs: Path, address: str, open_page: Open) -> None:
    sick, sound = (open_page(f"{address}#/run/{id_of(runs, name)}") for name in ("sick", "sound"))
    counts = []
    for page in (sick, sound):
        wait_until(page, lambda page=page: last_step(page, "Loss") == 299)
        page.mouse.move(2, 2)
        settle(page)
        counts.append(page.locator("figure.chart .plot canvas").first.evaluate(RED))
    assert counts[0] > 10
    assert counts[1] == 0
    assert "1 reading is not finite" in (sick.locator("figure.chart .overlay").first.get_attribute("aria-label") or "")


def test_zoom_and_cursor_are_linked_by_mouse_and_by_keyboard(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sound')}", height=1400)
    wait_until(page, lambda: last_step(page, "Loss") == 299)
    settle(page)
    surface = page.locator("figure.chart .overlay").first
    box = surface.bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 60, steps=4)
    page.mouse.up()
    settle(page)
    shown = page.locator(".toolbar .range")
    assert re.fullmatch(r"Steps \d+ to \d+", shown.inner_text())
    wait_until(page, lambda: 0 < last_step(page, "Gradient norm") < 299)
    surface.dblclick()
    settle(page)
    assert shown.inner_text().startswith("All steps")
    wait_until(page, lambda: last_step(page, "Loss") == 299)
    surface.focus()
    for key in ("Home", *["ArrowRight"] * 30):
        page.keyboard.press(key)
    value = page.locator("figure.chart .legend b").first
    smoothed = at_rest(page, value)
    for key in ("+", "+"):
        page.keyboard.press(key)
    wait_until(page, lambda: 0 < last_step(page, "Loss") < 299)
    assert at_rest(page, value) == smoothed  # no zoom changes it
    page.keyboard.press("Shift+ArrowRight")
    settle(page)
    assert shown.inner_text().startswith("Steps")
    page.keyboard.press("Escape")
    settle(page)
    assert shown.inner_text().startswith("All steps")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert page.locator(".print .caption").first.inner_text() == "after step 200"  # the one that was drawn by then
    page.get_by_role("radio", name="time").check(force=True)
    page.get_by_role("radio", name="whitened").check(force=True)
    wait_until(page, lambda: "usual" in page.locator("figure.chart .legend").first.inner_text())


def test_the_slider_goes_through_every_stage(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sound')}/samples")
    slider, caption = page.locator(".samples-main input.stage"), page.locator(".samples-main .caption")
    wait_until(page, slider.is_enabled)
    settle(page)
    slider.focus()
    page.keyboard.press("Home")
    seen = [caption.inner_text()]
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.append(caption.inner_text())
    assert seen == [f"after step {step}" for step in (60, 120, 200, 300)]
    assert page.locator(".samples-side .caption").first.inner_text() == "after step 300"  # they go along
    page.keyboard.press("Home")
    play = page.get_by_role("button", name="Play the stages of samples")
    play.click()
    wait_until(page, lambda: caption.inner_text() == "after step 300")
    play.wait_for()  # it has stopped, and does not go on from where somebody leads it
    page.locator(".samples-main .frame").click()
    page.keyboard.press("ArrowLeft")
    assert "after step 200" in page.locator("dialog .caption").inner_text()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")


@pytest.mark.parametrize("kind", ["dashboard", "report"])
def test_a_card_shows_the_batch_it_is_about(
    runs: Path, address: str, open_page: Open, tmp_path: Path, kind: str
) -> None:
    place = f"{address}#/run/{id_of(runs, 'sick')}/findings"
    if kind == "report":
        write_report(RunFolder(next(runs.glob("sick*"))), tmp_path / "report.html")
        place = (tmp_path / "report.html").as_uri()
    page = open_page(place, height=2600)
    if kind == "report":
        page.get_by_text("Findings").first.click()
    batch = page.get_by_role("article").filter(has_text="A learning rate that is too high").locator("section.batch")
    text = batch.inner_text()
    assert "images 4 (t 310), 17 (t 20)" in text.lower()
    rows = [row.split() for row in batch.locator("tbody tr").all_inner_texts()]
    assert rows == [["images", "−1", "1", "0.1", "0.5", "0", "%"], ["prediction", "–", "–", "–", "–", "100", "%"]]
    picture = batch.get_by_role("img")
    picture.scroll_into_view_if_needed()
    wait_until(page, lambda: picture.evaluate("image => image.naturalWidth") == 120)
    others = page.get_by_role("article").filter(has_not_text="A learning rate that is too high")
    assert others.locator("section.batch").count() == 0


def test_cards_tell_what_is_wrong_and_lead_to_the_moment(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sick')}/findings")
    card = page.get_by_role("article").filter(has_text="A learning rate that is too high")
    text = card.inner_text()
    for words in TOLD:
        assert words in text
    assert page.locator("article").first.inner_text().startswith("Warning")  # what is still true comes first
    wait_until(page, lambda: painted(page, "gradient/norm") > 500)
    card.get_by_role("button", name="Copy the settings").click()
    card.get_by_text("Copied").wait_for()
    card.get_by_role("button", name="Show in the charts").click()
    page.locator(".toolbar .range").wait_for()
    first = RULES_BY_CODE[page.locator("article code").first.text_content() or ""]
    assert page.locator(".alert b").inner_text() == first.title
    settle(page)
    shown = re.fullmatch(r"Steps (\d+) to (\d+)", page.locator(".toolbar .range").inner_text())
    assert shown
    assert int(shown[1]) < 120 < 180 < int(shown[2])


def test_a_silent_run_says_so_and_nothing_in_a_name_is_markup(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sick')}")
    page.get_by_text(re.compile(r"No heartbeat for (\d+ s|\d+ min)")).first.wait_for()
    assert page.locator("h1").inner_text() == "sick <img src=x onerror=alert(1)>"
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("link", name="Data and settings").click()
    page.locator(".data-page").get_by_text("<b>x</b>.png").wait_for()


def test_the_newest_run_comes_first(runs: Path, address: str, open_page: Open) -> None:
    """They were made in this order: sound, other, sick; by their names they would come otherwise."""
    page = open_page(address)
    page.locator(f'.run-row[data-id="{id_of(runs, "sound")}"]').wait_for()
    ours = [id_of(runs, name) for name in ("sick <img src=x onerror=alert(1)>", "other", "sound")]
    shown = [row.get_attribute("data-id") for row in page.locator(".run-row").all()]
    assert [each for each in shown if each in ours] == ours


def test_runs_are_compared_side_by_side(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/")
    page.get_by_label("Choose sound for comparing").check()
    page.get_by_label("Choose other for comparing").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.get_by_text("Settings that differ").wait_for()
    assert page.locator(".compare-body .verdict").inner_text().startswith("No clear difference between sound and other")
    levels = page.locator("table.levels tbody tr")
    assert levels.count() == 16
    assert levels.first.locator("td").count() == 4  # loss and skill of both
    page.locator(".compare-body figure.chart").first.scroll_into_view_if_needed()
    row = page.locator("table.settings tbody tr").filter(has_text="optimizer.lr")
    assert row.locator("td").all_inner_texts() == ["0.001", "0.01"]
    wait_until(page, lambda: last_step(page, "Distance from real images") == 299)
    settle(page)
    slider = page.get_by_label("Stage of all runs")
    slider.focus()
    page.keyboard.press("Home")
    settle(page)
    captions = page.locator(".beside .caption")
    assert captions.all_inner_texts() == ["after step 60"] * 2


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_both_themes_follow_the_system_and_the_choice_is_kept(address: str, open_page: Open, theme: str) -> None:
    page = open_page(f"{address}#/", theme=theme)
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(ground)
    assert first == {"dark": "rgb(18, 16, 14)", "light": "rgb(248, 245, 240)"}[theme]
    page.locator("#theme").click()
    other = page.evaluate(ground)
    page.reload()
    assert page.evaluate(ground) == other != first


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("#/", ".run-row"),
        ("#/run/ID", "figure.chart"),
        ("#/run/ID/samples", ".samples-main"),
        ("#/run/ID/findings", "article"),
        ("#/run/ID/data", ".data-page"),
        ("#/compare/ID,OTHER", "table.settings"),
    ],
    ids=lambda given: given if given.startswith("#") else "",
)
def test_a_narrow_screen_scrolls_only_down(runs: Path, address: str, open_page: Open, place: str, content: str) -> None:
    place = place.replace("ID", id_of(runs, "sick")).replace("OTHER", id_of(runs, "other"))
    page = open_page(address + place, width=360, height=740, has_touch=True)
    page.locator(content).first.wait_for()
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_keyboard_reaches_everything(address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/")
    page.get_by_text("sound").first.wait_for()
    settle(page)
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        words = "(each => each.textContent.trim() || each.ariaLabel || each.value || '')(document.activeElement)"
        reached.append(page.evaluate(words))
    assert reached[0] == "Skip to the content"
    assert {"Runs", "Compare", "Change to the light theme", "Find runs", "newest"} <= set(reached)
    assert any("for comparing" in each for each in reached)


def test_the_report_works_from_a_disk_without_a_network(runs: Path, open_page: Open, tmp_path: Path) -> None:
    sick = next(path for path in runs.iterdir() if path.name.startswith("sick"))
    write_report(RunFolder(sick), tmp_path / "report.html")
    page = open_page((tmp_path / "report.html").as_uri(), offline=True)
    wait_until(page, lambda: last_step(page, "Loss") == 299)
    wait_until(page, lambda: painted(page, "Loss by noise level") > 500)
    settle(page)
    page.locator(".print input.stage").focus()
    page.keyboard.press("Home")
    assert page.locator(".print .caption").first.inner_text() == "after step 60"
    wait_until(page, lambda: page.locator(".print .frame img").first.evaluate("image => image.naturalWidth") == 120)
    page.get_by_role("link", name="Findings").click()
    card = page.get_by_role("article").filter(has_text="A learning rate that is too high")
    card.get_by_role("button", name="Show in the charts").click()
    wait_until(page, lambda: last_step(page, "Loss") < 299)
    assert page.get_by_role("link", name="Compare").count() == 0
    pages = page.pdf(format="A4")
    assert pages.startswith(b"%PDF")
    assert len(pages) > 50_000


def test_a_report_smooths_as_the_server_does(address: str, open_page: Open) -> None:
    """Of a signal that is read at every tenth step, spans of sixteen steps hold one reading or two."""
    steps = np.arange(0, 4000, 10)
    spans = [list(group) for _, group in groupby(steps.tolist(), key=lambda step: step // 16)]
    values = np.concatenate([np.full(len(span), float(len(span) == 1)) for span in spans])
    wanted = exponential_mean(steps, values, 200.0)[np.cumsum(list(map(len, spans))) - 1]
    series = {"x": [span[0] for span in spans], "end": [span[-1] for span in spans]}
    series["mean"] = [float(len(span) == 1) for span in spans]
    page = open_page(f"{address}#/")
    found = page.evaluate("async (s) => (await import('/static/live/smooth.js')).exponential(s, 200)", series)
    assert np.abs(np.array(found) - wanted)[20:].max() < 0.06
    assert 0.2 < wanted[-1] < 0.3


HIDE = """window.away = false;
Object.defineProperty(document, "hidden", { get: () => window.away });
window.turn = (away) => { window.away = away; document.dispatchEvent(new Event("visibilitychange")) };"""


def log_steps(path: Path, steps: range) -> None:
    record = RecordWriter(path / "record.sqlite", from_step=steps.start, say=print)
    for step in steps:
        record.add(step, {"loss/mean": 0.2 + 0.02 * (step % 7), "gradient/norm": 1.0 + 0.1 * (step % 5)})
    record.close()


def test_a_hidden_tab_does_nothing_and_catches_up_when_it_is_seen(runs: Path, address: str, open_page: Open) -> None:
    path = build_run(runs / "hides", sick=True)
    page = open_page(f"{address}#/")
    page.add_init_script(HIDE)
    page.goto(f"{address}?again#/run/{id_of(runs, 'hides')}")
    witness = open_page(f"{address}#/run/{id_of(runs, 'hides')}")
    for each in (page, witness):
        wait_until(each, lambda each=each: last_step(each, "Loss") == 299)
        settle(each)
    page.evaluate("turn(true)")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for start in (300, 310):  # once the second news is seen in the other window, the first would have been in this one
        log_steps(path, range(start, start + 10))
        wait_until(witness, lambda start=start: reached(witness) == f"All steps, to {start + 9}")
    settle(page)
    assert asked == []
    assert reached(page) == "All steps, to 299"
    page.evaluate("turn(false)")
    wait_until(page, lambda: reached(page) == "All steps, to 319")
    log_steps(path, range(320, 330))  # and hears again
    wait_until(page, lambda: reached(page) == "All steps, to 329")


# Paints all again, and counts the pixels that differ then.
AGAIN = """async c => { const read = () => { const copy = document.createElement('canvas');
    [copy.width, copy.height] = [c.width, c.height];
    const context = copy.getContext('2d', { willReadFrequently: true });
    context.drawImage(c, 0, 0); return context.getImageData(0, 0, c.width, c.height).data };
  const frames = async () => { for (let i = 0; i < 3; i++) await new Promise((done) => requestAnimationFrame(done)) };
  const before = read(); dispatchEvent(new Event('storage')); await frames(); const after = read();
  let different = 0, painted = 0;
  for (let i = 0; i < after.length; i += 4) {
    if (after[i + 3]) painted += 1;
    if ([0, 1, 2, 3].some((k) => Math.abs(before[i + k] - after[i + k]) > 40)) different += 1;
  }
  return [different, painted] }"""


def test_a_curve_that_grows_bit_by_bit_looks_as_if_painted_at_once(runs: Path, address: str, open_page: Open) -> None:
    path = build_run(runs / "bits", sick=True)
    status = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(status | {"heartbeat": time.time() + 3600, "steps": 1000}))
    page = open_page(f"{address}#/", height=1400)
    page.add_init_script(
        "const clear = CanvasRenderingContext2D.prototype.clearRect; window.cleared = [];"
        "CanvasRenderingContext2D.prototype.clearRect = function (...area) {"
        " window.cleared.push(area[2] / this.canvas.clientWidth); return clear.apply(this, area) }"
    )
    page.goto(f"{address}?again#/run/{id_of(runs, 'bits')}")
    wait_until(page, lambda: last_step(page, "Loss") == 299)
    settle(page)
    page.evaluate("window.cleared = []")
    for start in range(300, 312, 3):
        log_steps(path, range(start, start + 3))
        wait_until(page, lambda start=start: reached(page) == f"All steps, to {start + 2}")
        settle(page)
    shares = page.evaluate("window.cleared")
    assert sum(share < 0.2 for share in shares) > len(shares) / 2  # most of the time only the end was painted
    for title in ("Loss", "Gradient norm"):
        chart = page.locator("figure.chart", has=page.get_by_role("heading", name=title, exact=True))
        different, drawn = chart.locator(".plot canvas").first.evaluate(AGAIN)
        assert drawn > 500
        assert different <= 3, title


def test_tabs_of_one_browser_share_one_stream(runs: Path, address: str, open_page: Open) -> None:
    """All of them hear what is new."""
    path = build_run(runs / "shared", sick=True)
    place = f"{address}#/run/{id_of(runs, 'shared')}"
    listing, streams = open_page(f"{address}#/"), list[str]()
    listing.context.on("request", lambda asked: streams.append(asked.url) if "/api/live" in asked.url else None)
    pages = [listing.context.new_page() for _ in range(3)]
    for page in pages:
        page.goto(place)
    for end in (299, 309):  # a tab that says how far it goes listens
        if end > 299:
            log_steps(path, range(300, 310))
        for page in pages:
            wait_until(page, lambda page=page, end=end: reached(page) == f"All steps, to {end}")
    assert len(streams) == 1


def test_a_wrong_target_of_a_watched_loop_is_on_its_page_while_it_runs(
    runs: Path, address: str, open_page: Open
) -> None:
    """With `-s` it prints the seconds from before the first step."""
    page, wrong = open_page(f"{address}#/"), "declared to predict epsilon, but its target is v_prediction"
    program = Path(__file__).parents[2] / "support" / "v_target_loop.py"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, str(program), str(runs / "mistaken")], text=True, **pipes) as loop:
        assert loop.stdin is not None
        assert loop.stdout is not None
        assert loop.stderr is not None
        try:
            began = float(loop.stdout.readline())
            said = next(line for line in loop.stderr if "TAR001" in line)
            printed = time.time()
            assert said.startswith("Error TAR001 target.other-type")
            page.locator(".run-row", has_text="mistaken").filter(has_text=wrong).wait_for()
            print(
                f"The finding: {printed - began:.1f} s until stderr, {time.time() - began:.1f} s until the list of runs"
            )
            page.get_by_text("mistaken", exact=True).click()
            page.locator("p.verdict", has_text=wrong).wait_for()
            page.get_by_role("link", name="Findings").click()
            page.locator(".findings-page", has_text="TAR001").wait_for()
            assert loop.poll() is None, "it is still running"
        finally:
            loop.stdin.close()
            loop.stderr.read()
    page.goto(f"{address}#/")
    row = page.locator(".run-row", has_text="mistaken").filter(has_text=wrong)
    wait_until(page, lambda: row.count() == 1 and row.locator(".state").inner_text() != "Watched")


def test_every_signal_is_found_and_can_be_pinned(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sound')}/signals")
    page.get_by_role("heading", name="Logged by you").wait_for()
    groups = page.locator(".signals-page h2").all_inner_texts()
    assert groups[0].startswith("Logged by you")  # before ours
    find = page.get_by_label("Find signals")
    find.fill("weights norm")
    assert page.locator(".signals-page [role=status]").inner_text().startswith("0 of")
    find.fill("mine/acc")
    page.get_by_role("button", name="Pin mine/accuracy to the overview").click()
    assert page.locator(".signals-page h2").first.inner_text().startswith("Pinned")
    wait_until(page, lambda: last_step(page, "mine/accuracy") == 299)
    page.get_by_role("link", name="Overview").click()
    pinned = page.locator(".chart-grid.pinned figure")
    wait_until(page, lambda: pinned.get_by_role("heading").all_inner_texts() == ["mine/accuracy"])
    page.reload()
    page.locator(".chart-grid.pinned figure").wait_for()
    page.get_by_role("link", name="All signals").click()
    page.get_by_role("button", name="Pin mine/accuracy to the overview").click()
    assert page.locator(".chart-grid.pinned figure").count() == 0


def test_a_zoom_is_in_the_address_and_comes_back_with_it(runs: Path, address: str, open_page: Open) -> None:
    place = f"{address}#/run/{id_of(runs, 'sound')}"
    page = open_page(f"{place}?steps=100-160")
    shown = page.locator(".toolbar .range")
    wait_until(page, lambda: shown.count() == 1 and shown.inner_text() == "Steps 100 to 160")
    page.get_by_role("button", name="Show all").click()
    assert page.url == place
    surface = page.locator("figure.chart .overlay").first
    surface.focus()
    page.keyboard.press("Home")
    page.keyboard.press("+")
    assert re.search(r"\?steps=\d+-\d+$", page.url)
    kept = shown.inner_text()
    page.reload()
    wait_until(page, lambda: shown.count() == 1 and shown.inner_text() == kept)
    page.get_by_role("link", name="Findings").click()
    wait_until(page, lambda: re.search(r"/findings\?steps=\d+-\d+$", page.url) is not None)


def test_the_command_and_what_differs_from_the_preset_can_be_copied(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'other')}/reproduce")
    command = page.locator(".reproduce-page .copyable").first
    assert command.locator("pre").inner_text() == "safelight train 'my photos' --lr 0.01"
    command.get_by_role("button", name="Copy the command").click()
    command.get_by_text("Copied").wait_for()
    row = page.locator(".reproduce-page tbody tr").filter(has_text="optimizer.lr")
    assert row.locator("td").last.inner_text() == "0.01"
    facts = page.locator(".reproduce-page dl").inner_text()
    assert "aaaaaaaaaaaa, with changes that are not committed" in facts
    assert "lr: 0.01" in page.locator(".reproduce-page pre").last.inner_text()


def test_the_noise_levels_say_what_they_are_and_nothing_where_nothing_was_measured(
    runs: Path, address: str, open_page: Open
) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'other')}", height=1400)
    chart = page.locator("figure.chart", has=page.get_by_role("heading", name="Loss by noise level"))
    wait_until(page, lambda: painted(page, "Loss by noise level") > 500)
    box = chart.locator(".overlay").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 15)
    words = chart.locator(".legend b.wide")
    wait_until(page, lambda: words.inner_text().startswith("level 15 (t 938 to 1,000, log-SNR −10 to −9): "))
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 15)
    wait_until(page, lambda: "not measured at step 2" in words.inner_text())  # the last column ends at 255
    sparse = page.locator("figure.chart", has=page.get_by_role("heading", name="Distance from real images"))
    surface = page.locator("figure.chart .overlay").first
    surface.focus()
    page.keyboard.press("Home")
    settle(page)
    sparse.scroll_into_view_if_needed()
    wait_until(page, lambda: last_step(page, "Distance from real images") == 299)
    assert sparse.locator(".legend b").first.inner_text() == "–"  # the first evaluation came after step 100


def test_no_clipping_is_no_alarm(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'other')}", height=2000)
    chart = page.locator("figure.chart", has=page.get_by_role("heading", name="Gradient norm"))
    wait_until(page, lambda: last_step(page, "Gradient norm") == 299)
    assert chart.locator(".plot canvas").first.evaluate(RED) == 0
    assert chart.locator(".legend b").all_inner_texts()[1] == "none"


def test_what_passed_is_listed_by_family(runs: Path, address: str, open_page: Open) -> None:
    page = open_page(f"{address}#/run/{id_of(runs, 'sound')}/findings")
    family = page.locator("details.family").filter(has_text="Learning rate")
    assert re.search(r"\d+ passed", family.locator("summary").inner_text())
    family.locator("summary").click()
    assert family.locator(".check-list.good li").count() > 0


BAD = ("serious", "critical")
PLACES = ("", "run/{sound}", "run/{sound}/samples", "run/{sound}/signals", "run/{sound}/data", "run/{other}/reproduce",
          "run/{sick}/findings", "run/{sound}/findings", "compare/{sound},{other}")  # fmt: skip


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_nothing_serious_stands_in_the_way_of_anybody(runs: Path, address: str, open_page: Open, theme: str) -> None:
    """axe-core on every page; the last control shows that it sees what it should."""
    reason = "needs axe-core: pip install axe-playwright-python"
    package = pytest.importorskip("axe_playwright_python", reason=reason)
    axe = (Path(package.__file__).parent / "axe.min.js").read_text()
    ids = {name: id_of(runs, name) for name in ("sound", "other", "sick")}
    page = open_page(address, theme=theme)
    page.evaluate(axe)

    def violations() -> list[str]:
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [f"{each['id']}: {each['nodes'][0]['target']}" for each in found if each["impact"] in BAD]

    for place in PLACES:
        page.evaluate("place => { location.hash = place }", f"#/{place.format(**ids)}")
        settle(page)
        assert violations() == [], place
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert [each.partition(":")[0] for each in violations()] == ["label"]
