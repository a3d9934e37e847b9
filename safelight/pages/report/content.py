"""What a report knows: the same answers that the dashboard's server gives, gathered once."""

from __future__ import annotations

import time
from typing import Any

from safelight.errors import RecordError
from safelight.pages.data.clock import clock
from safelight.pages.data.gallery import find_pictures
from safelight.pages.data.heatmap import heatmap
from safelight.pages.data.overview import open_run_history, overview
from safelight.pages.data.run_state import read_status
from safelight.pages.data.series import series
from safelight.pages.report.embedded_pictures import embed
from safelight.record.history import History
from safelight.run import RunFolder

FINE, COARSE, EVIDENCE = 2000, 150, 400  # spans of a curve, of a part of the network, of a piece of evidence
COLUMNS = 300  # of the noise levels
DRAWN = ("loss/mean", "loss/whitened", "optimizer/lr", "gradient/norm", "gradient/limit", "update/refused", "probe/raw",
         "probe/ema", "probe/held_raw", "probe/held_ema", "quality/distance", "quality/distance_error",
         "quality/coverage", "diversity/variance", "diversity/vendi", "copies/share", "speed/images", "speed/data_wait",
         "system/memory")  # fmt: skip
PARTS = "gradient/part/"
MOST_PARTS, MOST_EVIDENCE = 64, 40


def gather(run: RunFolder, budget: int) -> dict[str, Any]:
    """Everything the pages show; its pictures take at most `budget` characters."""
    page = overview(run)
    found: dict[str, Any] = {"run": page, "made": time.time(), "series": {}, "clock": None, "heatmap": None}
    found["pictures"] = {}
    try:
        with open_run_history(run) as history:
            found["series"] = _curves(history, page)
            found["heatmap"] = heatmap(history, pixels=COLUMNS)
            found["clock"] = clock(history, read_status(run), page["batch_size"])
            files = {each.id: each.path for each in find_pictures(history, run).values()}
            found["pictures"] = embed(page["pictures"], files, budget)
    except RecordError:
        pass  # the overview has the message
    for finding in page["findings"]:  # a file that is sent must not contain local paths
        finding["command"] = finding["command"] and finding["command"].replace(str(run.path.resolve()), run.path.name)
    page["pictures"] = [each | {"url": ""} for each in page["pictures"] if each["id"] in found["pictures"]]
    return found


def _curves(history: History, page: dict[str, Any]) -> dict[str, Any]:
    names = [each["name"] for each in page["signals"]]
    parts = [name for name in names if name.startswith(PARTS)][:MOST_PARTS]
    proofs = {each["signal"] for finding in page["findings"] for each in finding["evidence"]}
    evidence = [name for name in names if name in proofs and name not in DRAWN and name not in parts][:MOST_EVIDENCE]
    fine = [name for name in DRAWN if name in set(names)]
    return {
        **series(history, parts, pixels=COARSE)["series"],
        **series(history, evidence, pixels=EVIDENCE)["series"],
        **series(history, fine, pixels=FINE)["series"],
    }
