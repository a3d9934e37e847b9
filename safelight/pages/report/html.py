"""The report as HTML: one file that needs nothing else, and that nothing inside it can make run other code."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

from safelight.files import write_atomically
from safelight.pages.data.bundle import bundle_script, bundle_style
from safelight.pages.data.overview import open_run_history
from safelight.pages.report.content import gather
from safelight.run import RunFolder

LARGEST = 10_000_000  # bytes of a report
REST = 4_500_000  # of them for everything but pictures: curves of the longest run, the script, the styles
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="9" fill="#ff7847"/></svg>'
)
ICON = f"data:image/svg+xml;base64,{base64.b64encode(DRAWING.encode()).decode()}"


def write_report(run: RunFolder, out: Path) -> int:
    """Writes the report of a run whole or not at all; answers its size in bytes."""
    if not run.status():
        open_run_history(run).close()  # neither status nor record: raises with a message
    page = render(gather(run, LARGEST - REST)).encode()
    write_atomically(out, page)
    return len(page)


def render(island: dict[str, Any]) -> str:
    script, style = bundle_script(), bundle_style()
    run = island["run"]
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # "<" is never written inside the data: so no name of a run can end the element early.
    data = json.dumps(island, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
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
<script type="application/json" id="island">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
