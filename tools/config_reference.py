"""The reference of all settings, docs/config.md, written from the config tree itself.

python -m tools.config_reference            # writes docs/config.md
python -m tools.config_reference --check    # exits 1 if the file on disk differs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from safelight.config.presets import ABOUT, FLAGS, PRESETS
from safelight.config.reference import UNSET, Setting, docstrings, sections, settings, spell
from safelight.config.resolve import flatten

PAGE = Path("docs/config.md")
COMMAND = "python -m tools.config_reference"
__all__ = ["Setting", "docstrings", "main", "page", "sections", "settings", "spell"]


def page() -> str:
    """The whole of docs/config.md."""
    return "\n".join([*_head(), *_presets(), *_sections()])


def _head() -> list[str]:
    return [
        "# Settings",
        "",
        f"<!-- Written by `{COMMAND}` from safelight/config/tree.py and presets.py. Do not edit by hand. -->",
        "",
        "A run is described by one tree of settings. A setting has a dotted key, such as `train.steps`.",
        "Settings are merged in this order. A later one takes precedence:",
        "",
        "1. the defaults below",
        "2. the preset: `--preset small`. Without `--preset` and `--config` it is `digits` for digits and `tiny` for"
        " all other data",
        "3. the file: `--config FILE`, YAML with sections",
        "4. the flags: `--steps 500`",
        "5. `--set train.steps=500`",
        "",
        "A list is written `[64, 128]` or `64,128`. A setting whose type ends in “or none” is unset by `none`.",
        "",
        "Some settings have an effect only with one choice of another setting. If you set only `ema.decay`, it also",
        "chooses `ema.kind` `exponential`; `clipping.factor` chooses the `adaptive` kind. Together with another choice",
        "they are refused.",
        "",
        "The resolved settings of a run are in its `config.yaml`, which is itself a valid `--config`.",
        "",
        "```yaml",
        "data:",
        "  source: digits",
        "  image_size: 16",
        "model:",
        "  widths: [32, 64]",
        "  attention: [8]",
        "train:",
        "  steps: 3000",
        "```",
        "",
    ]


def _presets() -> list[str]:
    blocks = [block for name in PRESETS for block in _preset(name)]
    about = (
        "A preset is a set of settings that differ from the defaults. A network that is too small for its images stays "
        "below a\nlinear filter, however long it is trained (LEA005): raise `model.widths` then."
    )
    return ["## Presets", "", about, "", *blocks]


def _preset(name: str) -> list[str]:
    rows = [f"| `{key}` | {_code(spell(value))} |" for key, value in flatten(PRESETS[name]).items()]
    return [
        f"### Preset `{name}`",
        "",
        f"{ABOUT[name][:1].upper()}{ABOUT[name][1:]}.",
        "",
        "| setting | value |",
        "|---|---|",
        *rows,
        "",
    ]


def _sections() -> Iterator[str]:
    everything = settings()
    flags = {key: name.replace("_", "-") for name, key in FLAGS.items()}
    for section, (about, _) in sections().items():
        yield from (f"## {section}", "", about, "", "| key | type | default | meaning |", "|---|---|---|---|")
        for setting in everything:
            if setting.key.startswith(f"{section}."):
                yield _row(setting, flags.get(setting.key))
        yield ""


def _row(setting: Setting, flag: str | None) -> str:
    short = {None: "", "data": " Flag: the argument `DATA`."}.get(flag, f" Flag: `--{flag}`.")
    return f"| `{setting.key}` | {setting.type} | {_code(setting.default)} | {_cell(setting.help)}{short} |"


def _code(text: str) -> str:
    return text if text == UNSET else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page, or with --check says whether the one on disk is up to date."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the reference of all settings.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file differs")
    parser.add_argument("file", nargs="?", type=Path, default=PAGE, help=f"the page ({PAGE})")
    given = parser.parse_args(arguments)
    if not given.check:
        given.file.write_text(page(), encoding="utf-8")
        return 0
    found = given.file.read_text(encoding="utf-8") if given.file.is_file() else None
    if found == page():
        return 0
    print(f"{given.file} {'is missing' if found is None else 'is out of date'}. Write it: {COMMAND}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
