"""The one-file report: small enough for the longest run, safe from names in it, and whole without a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from showcase import build_run

from safelight.cli import main
from safelight.pages.data.bundle import bundle_script, bundle_style
from safelight.pages.report.embedded_pictures import choose, embed
from safelight.pages.report.html import LARGEST, write_report
from safelight.run import RunFolder


def island_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="island">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def write_modules(folder: Path, **sources: str) -> Path:
    for name, source in sources.items():
        (folder / f"{name}.js").write_text(source)
    return folder


# Bundling


def test_modules_become_one_script_in_which_names_do_not_clash(tmp_path: Path) -> None:
    static = write_modules(
        tmp_path,
        main='import { one as first, LIST } from "./one.js";\nimport { two } from "./two.js";\nconst x = first();\n',
        one="const x = 1;\nexport function one() { return x; }\nexport const LIST = [];\n",
        two='import { one } from "./one.js";\nconst x = 2;\nexport function two() { return one() + x; }\n',
    )
    script = bundle_script(static=static)
    assert script.count("function one()") == 1
    assert "const { one: first, LIST } = $one;" in script
    assert not re.search(r"^(import|export)\b", script, re.M)


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (
            {"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\nexport const a = 1;\n'},
            "itself",
        ),
        ({"main": 'import a from "./a.js";\n'}, "cannot be bundled"),
        ({"main": "export default 1;\n"}, "cannot be bundled"),
    ],
)
def test_what_cannot_be_bundled_is_told(tmp_path: Path, sources: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bundle_script(static=write_modules(tmp_path, **sources))


def test_the_pages_fit_into_one_script_and_one_style() -> None:
    script, style = bundle_script(), bundle_style()
    assert not re.search(r"</script|<!--", script)
    assert "</style" not in style
    assert style.count("{") == style.count("}")


# Pictures


def stages(count: int, kind: str = "samples") -> list[dict[str, Any]]:
    return [{"id": f"{kind}{step}", "kind": kind, "step": step} for step in range(count)]


@pytest.mark.parametrize("count", [1, 2, 50, 51, 1000])
def test_stages_are_chosen_evenly_with_both_ends(count: int) -> None:
    chosen = [each["step"] for each in choose(stages(count))]
    assert len(chosen) == len(set(chosen)) == min(count, 50)
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    assert max(np.diff(chosen), default=1) <= count / 49 + 1


@pytest.mark.parametrize("budget", [5_000_000, 400_000, 30_000])
def test_pictures_keep_to_the_budget_and_some_are_left(tmp_path: Path, budget: int) -> None:
    files = {}
    for each in stages(30):
        files[each["id"]] = tmp_path / f"{each['id']}.png"
        noise = np.random.default_rng(each["step"]).integers(0, 255, (300, 400, 3), np.uint8)
        Image.fromarray(noise).save(files[each["id"]])
    found = embed(stages(30), files, budget)
    assert 0 < sum(map(len, found.values())) <= budget
    assert all(address.startswith("data:image/") for address in found.values())


def test_a_broken_picture_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG nothing")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    pictures = [{"id": "a", "kind": "samples", "step": 0}, {"id": "b", "kind": "samples", "step": 1}]
    assert list(embed(pictures, {"a": tmp_path / "a.png", "b": tmp_path / "b.png"}, 10_000)) == ["b"]


# The file


def test_the_report_is_one_file_with_everything_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run(tmp_path / "run", sick=True)
    out = tmp_path / "out" / "report.html"
    out.parent.mkdir()
    assert main(["report", str(run), "-o", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    page = out.read_text(encoding="utf-8")
    island = island_of(page)
    assert {"loss/mean", "gradient/part/conv_in", "quality/distance"} <= set(island["series"])
    assert len(island["pictures"]) == len(island["run"]["pictures"]) == 12
    assert [finding["code"] for finding in island["run"]["findings"]] == ["SYS001", "LRA001"]
    assert sum(island["series"]["loss/mean"]["nonfinite"]) == 1
    assert str(tmp_path) not in page
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)""", page) == []


def test_nothing_in_a_run_ends_the_data_early(tmp_path: Path) -> None:
    run = build_run(tmp_path / "x<script>alert(1)<")
    (run / "config.yaml").write_text("data: {source: '</script><script>alert(1)</script>'}\n")
    write_report(RunFolder(run), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2
    assert "alert(1)</" not in page
    assert "</script>" in island_of(page)["run"]["config"]["data.source"]


@pytest.mark.parametrize("missing", ["record.sqlite", "data.json", "config.yaml", "samples"])
def test_a_run_that_lacks_something_still_has_a_report(tmp_path: Path, missing: str) -> None:
    run = build_run(tmp_path / "run")
    (run / missing).rename(tmp_path / "away")
    assert write_report(RunFolder(run), tmp_path / "report.html") < LARGEST


def test_a_folder_that_is_no_run_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "no config.yaml" in capsys.readouterr().err
    run = build_run(tmp_path / "run")
    assert main(["report", str(run), "-o", str(tmp_path)]) == 2
    assert main(["report", str(run), "-o", str(tmp_path / "no" / "such" / "file.html")]) == 2


def test_training_leaves_a_report(trained_run: Path) -> None:
    island = island_of((trained_run / "report.html").read_text(encoding="utf-8"))
    assert island["run"]["state"] == "finished"
    assert island["series"]["loss/mean"]["x"] == [0, 1, 2, 3, 4, 5]


def test_a_report_that_fails_costs_one_line(
    train_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("safelight.runner.write_report", fail)
    run = train_tiny("without-report")
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert capsys.readouterr().err.count("The report could not be made (MemoryError: no room)") == 1


def test_the_report_needs_neither_torch_nor_the_web(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from safelight.run import RunFolder; "
        "from safelight.pages.report.html import write_report; "
        "write_report(RunFolder(Path(sys.argv[1])), Path(sys.argv[2])); "
        "print([n for n in ('torch', 'starlette', 'uvicorn') if n in sys.modules])"
    )
    asked = [sys.executable, "-c", code, str(run), str(tmp_path / "report.html")]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == "[]"
