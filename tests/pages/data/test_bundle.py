"""Modules become one script in which names do not clash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from safelight.pages.data.bundle import bundle_script, bundle_style


def write_modules(folder: Path, **sources: str) -> Path:
    for name, source in sources.items():
        (folder / f"{name}.js").write_text(source)
    return folder


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
