"""The report as HTML: one file with the same answers that the server of the dashboard gives, which needs nothing else
and in which nothing can make other code run."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from safelight.errors import RecordError
from safelight.files import DISK, write_atomically
from safelight.pages.data.bundle import bundle_script, bundle_style
from safelight.pages.data.clock import clock
from safelight.pages.data.gallery import find_pictures
from safelight.pages.data.overview import open_run_history, overview
from safelight.pages.data.run_state import read_status
from safelight.pages.data.series import heatmap, series
from safelight.pages.report.embedded_pictures import embed
from safelight.record.history import History
from safelight.run import RunFolder
from safelight.vocabulary import SKILL_AT_LEVEL

REPORT = "report.html"  # in a run folder
MAX_REPORT_BYTES = 10_000_000  # bytes of a report
REST_BYTES = 4_500_000  # of them for everything but pictures: curves of the longest run, the script, the styles
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="9" fill="#ff7847"/></svg>'
)
ICON = f"data:image/svg+xml;base64,{base64.b64encode(DRAWING.encode()).decode()}"
# Spans of a curve, of a part of the network, of a piece of evidence
FINE_SPANS, COARSE_SPANS, EVIDENCE_SPANS = 2000, 150, 400
REST_SPANS = 40  # of each other signal: 400 of them are 1 MB at most
COLUMNS = 300  # of the noise levels
DRAWN = ("loss/mean", "loss/whitened", "optimizer/lr", "gradient/norm", "gradient/limit", "update/refused", "probe/raw",
         "probe/ema", "probe/held_raw", "probe/held_ema", "quality/distance", "quality/distance_error",
         "quality/real_distance", "quality/target_distance",
         "quality/coverage", "diversity/variance", "diversity/vendi", "copies/share", "speed/images", "speed/data_wait",
         "system/memory", "skill/raw", "skill/ema", "skill/held", "skill/exact",
         "skill/held_exact")  # fmt: skip
PARTS = "gradient/part/"
MOST_PARTS, MOST_EVIDENCE, MOST_OWN, MOST_REST = 64, 40, 24, 400


def write_report(run: RunFolder, out: Path | None = None) -> int:
    """Writes the report whole or not at all, into the run folder if not told where; returns its size in bytes."""
    page = make_report(run)
    write_atomically(out or run.report_page, page, run.disk if out is None else DISK)
    return len(page)


def make_report(run: RunFolder) -> bytes:
    if not run.status():
        open_run_history(run).close()  # neither status nor record: raises with a message
    return render(collect(run, MAX_REPORT_BYTES - REST_BYTES)).encode()


def collect(run: RunFolder, budget: int) -> dict[str, Any]:
    """Everything the pages show; its pictures take at most `budget` characters."""
    page = overview(run)
    found: dict[str, Any] = {"run": page, "made": time.time(), "series": {}, "clock": None, "pictures": {}}
    found |= {"heatmap": None, "skill": None}
    with suppress(RecordError), open_run_history(run) as history:  # the overview has the message
        found["series"] = _curves(history, page)
        found["heatmap"] = heatmap(history, pixels=COLUMNS)
        found["skill"] = heatmap(history, pixels=COLUMNS, family=SKILL_AT_LEVEL)
        found["clock"] = clock(history, read_status(run), page["batch_size"])
        files = {each.id: each.path for each in find_pictures(history, run).values()}
        found["pictures"] = embed(page["pictures"], files, budget)
    for finding in page["findings"]:  # a file that is sent must not contain local paths
        finding["command"] = finding["command"] and finding["command"].replace(str(run.path.resolve()), run.path.name)
    again = page["reproduce"]["again"]
    page["reproduce"]["again"] = again and again.replace(str(run.path.resolve()), run.path.name)
    page["pictures"] = [each | {"url": ""} for each in page["pictures"] if each["id"] in found["pictures"]]
    return found


def _curves(history: History, page: dict[str, Any]) -> dict[str, Any]:
    names = [each["name"] for each in page["signals"]]
    parts = [name for name in names if name.startswith(PARTS)][:MOST_PARTS]
    proofs = {each["signal"] for finding in page["findings"] for each in finding["evidence"]}
    evidence = [name for name in names if name in proofs and name not in DRAWN and name not in parts][:MOST_EVIDENCE]
    fine = [name for name in DRAWN if name in set(names)]
    own = [each["name"] for each in page["signals"] if not each["meaning"]][:MOST_OWN]
    drawn = {*parts, *evidence, *fine, *own}
    rest = [name for name in names if name not in drawn][:MOST_REST]
    curves = dict[str, Any]()
    for chosen, pixels in (
        (parts, COARSE_SPANS),
        (evidence, EVIDENCE_SPANS),
        (own, EVIDENCE_SPANS),
        (fine, FINE_SPANS),
        (rest, REST_SPANS),
    ):
        curves |= series(history, chosen, pixels=pixels)["series"]
    return curves


def render(report: dict[str, Any]) -> str:
    script, style = bundle_script(), bundle_style()
    run = report["run"]
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # "<" is never written inside the data: so no name of a run can end the element early.
    data = json.dumps(report, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    name, verdict = html.escape(str(run["name"])), html.escape(str(run["verdict"]["sentence"]))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>{name} · Safelight</title>
<link rel="icon" href="{ICON}">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="masthead" id="masthead"></header>
<main id="main" tabindex="-1"><h1>{name}</h1><p>{verdict}</p></main>
<script type="application/json" id="report-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
