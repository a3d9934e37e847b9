"""The documentation names everything that exists, and nothing that does not."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import tyro

from safelight import errors, keys
from safelight.cli import COMMANDS, main
from safelight.config import tree
from safelight.config.check import check
from safelight.config.presets import ABOUT, FLAGS, PRESETS
from safelight.config.resolve import resolve, types_of_fields
from safelight.errors import UsageError
from safelight.processes.interrupts import PREEMPTED, STOP_SIGNALS
from safelight.vocabulary import SIGNALS as MEASURED
from tools import config_reference as reference

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
SECTION_NAMES = "|".join(reference.sections())
BROKEN_PIPE = 141


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def missing(names: Iterable[object], text: str) -> list[str]:
    """The names that a text does not have as a whole word."""
    return [str(n) for n in names if not re.search(rf"(?<![\w./-]){re.escape(str(n))}(?![\w-])", text)]


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one of its level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S) if language in languages]


def source(name: str) -> str:
    return (ROOT / "safelight" / name).read_text(encoding="utf-8")


def all_sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "safelight").rglob("*.py")))


def by_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# The checking function itself


@pytest.mark.parametrize("name", ["train.no_such_field", "train.step", "rain.steps", "steps", "train.steps.x"])
def test_a_name_that_is_not_there_is_reported(name: str) -> None:
    assert missing([name], "Set `train.steps`, or `--train.steps-more`.") == [name]


def test_a_name_that_is_there_is_found() -> None:
    assert missing(["train.steps", "--lr", 75], "`train.steps` (`--lr N`), exit code 75.") == []


# Commands and flags


def flags_of(verb: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Every flag in the left column of a command's help."""
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    columns = re.findall(r"^[│ ] {1,2}(-{1,2}[a-z].*?)(?:\s{2,}|$)", capsys.readouterr().out, re.M)
    return {flag for column in columns for flag in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", column)}


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_command_and_flag_is_documented_and_no_other(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = flags_of(verb, capsys)
    assert {"-h", "--help"} <= flags
    text = section(read("commands.md"), f"safelight {verb}")
    assert missing(flags, text) == []
    assert missing(["--made-up"], text) == ["--made-up"]
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rows)) <= flags


def test_presets_are_named_where_they_are_chosen() -> None:
    for verb in ("train", "estimate"):
        assert missing(PRESETS, section(read("commands.md"), f"safelight {verb}")) == []


def test_changes_at_resume_are_listed() -> None:
    from safelight.config.continuation import SAME_BITS, SAME_MEANING

    text = section(read("commands.md"), "safelight resume")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| same")}
    for kind, names in {"same bytes": SAME_BITS, "same meaning": SAME_MEANING}.items():
        assert set(re.findall(rf"`((?:{SECTION_NAMES})\.\w+)`", rows[kind])) == names


VERB = "|".join(COMMANDS)
COMMAND = re.compile(rf"(?:^|\s|\()safelight +((?:{VERB})\b[^#&|;)\n]*)", re.M)


def commands_in(text: str) -> list[str]:
    return [found.strip() for body in blocks(text, "", "bash", "sh", "text") for found in COMMAND.findall(body)]


def run_through_the_parser(line: str) -> None:
    """What the command line does before it begins to work."""
    verb, *words = shlex.split(line)
    from importlib import import_module

    if verb == "run":  # what follows the script belongs to it
        from safelight.cli.run import divide

        words, target = divide(words)
        assert target, line
    command = tyro.cli(import_module(f"safelight.cli.{verb}").Command, args=words)
    if "--help" not in words and verb in ("train", "estimate"):
        from safelight.cli.flags.options import config_from

        check(config_from(command))


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_command_shown_is_understood(page: Path) -> None:
    for line in commands_in(page.read_text(encoding="utf-8")):
        if "--help" not in line and "[" not in line:  # [DATA] [flags]: a form, not a command
            run_through_the_parser(line)


@pytest.mark.parametrize(
    "line", ["train --stepz 3", "train --set train.stepz=3", "train --preset huge", "sample", "run --stepz a.py"]
)
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    assert commands_in(f"```bash\nsafelight {line}  # comment\n```") == [line]
    with pytest.raises((SystemExit, UsageError)):
        run_through_the_parser(line)


def test_commands_are_found_in_the_quickstart() -> None:
    assert len(commands_in(read("quickstart.md"))) >= 8


# Settings


def test_every_setting_is_documented_with_a_meaning() -> None:
    text = read("config.md")
    assert missing(types_of_fields(), text) == []
    assert missing([*types_of_fields(), "train.made_up"], text) == ["train.made_up"]
    assert [setting.key for setting in reference.settings() if not setting.help] == []
    assert [name for name, (about, _) in reference.sections().items() if not about] == []


def test_every_preset_is_documented() -> None:
    assert set(ABOUT) == set(PRESETS)
    assert missing((f"### Preset `{name}`" for name in PRESETS), read("config.md")) == []
    assert missing(["### Preset `huge`"], read("config.md")) == ["### Preset `huge`"]


def test_the_page_of_settings_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "config.md"
    assert reference.main(["--check", str(page)]) == 0, f"run: {reference.COMMAND}"
    old = tmp_path / "config.md"
    old.write_text(page.read_text(encoding="utf-8").replace("`train.steps`", "`train.step`"), encoding="utf-8")
    assert reference.main(["--check", str(old)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert reference.main(["--check", str(tmp_path / "none.md")]) == 1
    assert reference.main([str(old)]) == 0
    assert reference.main(["--check", str(old)]) == 0


def test_fields_are_read_from_the_source() -> None:
    found = reference.docstrings(
        'class A:\n    """About."""\n    x: int = 1\n    """The x,\n    twice."""\n    y: int = 2\n'
    )
    assert found == {"A": ("About.", {"x": "The x, twice."})}


FORMS = ("KEY", "section.name")  # what stands for any setting


def settings_named_in(text: str) -> set[str]:
    found = {*re.findall(r"--set ([\w.]+)=", text), *re.findall(rf"`((?:{SECTION_NAMES})\.\w+)(?:=\S+)?`", text)}
    return {name for name in found if name not in FORMS and not name.endswith((".safetensors", ".json"))}


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_setting_named_exists(page: Path) -> None:
    assert settings_named_in(page.read_text(encoding="utf-8")) - types_of_fields().keys() == set()


def test_a_setting_that_does_not_exist_would_be_noticed() -> None:
    assert settings_named_in("`train.stepz`, `train.stepz=1`, --set ema.widht=1") == {"train.stepz", "ema.widht"}
    assert settings_named_in("--set KEY=VALUE, `model.json`") == set()


def yaml_blocks() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, body in enumerate(blocks(page.read_text(encoding="utf-8"), "yaml", "yml")):
            yield f"{by_name(page)}-{number}", body


@pytest.mark.parametrize(("name", "body"), list(yaml_blocks()))
def test_every_yaml_shown_is_a_config_that_works(name: str, body: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text(body, encoding="utf-8")
    check(resolve(file=file))


def test_a_wrong_yaml_would_be_noticed(tmp_path: Path) -> None:
    [body] = blocks("```yaml\ntrain:\n  stepz: 1\n```\n```python\nx\n```\n", "yaml")
    file = tmp_path / "shown.yaml"
    file.write_text(body, encoding="utf-8")
    with pytest.raises(UsageError, match="stepz"):
        resolve(file=file)


def test_the_words_of_each_choice_are_explained() -> None:
    process = (tree.Schedule, tree.Prediction, tree.Loss, tree.Weighting, tree.TimestepSampling, tree.Sampler)
    assert missing((f"`{word}`" for kind in process for word in get_args(kind)), read("diffusion.md")) == []
    training = (tree.Precision, types_of_fields()["clipping.kind"], types_of_fields()["ema.kind"])
    assert missing((f"`{word}`" for kind in training for word in get_args(kind)), read("training.md")) == []


# Signals, events, streams, exit codes


def test_every_signal_is_documented_in_its_own_words() -> None:
    rows = [line.split("|")[1:4] for line in read("signals.md").splitlines() if line.startswith("| `")]
    documented = {tuple(map(str.strip, row)) for row in rows}
    assert documented == {(f"`{signal.name}`", signal.unit, signal.meaning) for signal in MEASURED}


def test_every_status_and_event_is_documented() -> None:
    text, code = read("run-folder.md"), all_sources()
    statuses = set(re.findall(r'status="([a-z ]+)"', code))
    kinds = set(re.findall(r'\bevent\([^()]*?, "(\w+)"', code))
    assert "finished" in statuses
    assert "refused" in kinds
    assert missing((f"`{word}`" for word in statuses | kinds), text) == []


def test_every_file_of_a_run_is_documented() -> None:
    written = set(re.findall(r'_Inside\("([\w.]+)"\)', source("run.py")))
    written |= set(re.findall(r'= "(\w+\.gif)"', source("observing/stage_pictures.py")))
    assert {"run.json", "timelapse.gif"} <= written
    assert missing(written, read("run-folder.md")) == []


def test_the_schema_of_the_record_is_documented() -> None:
    from safelight.record.schema import SCHEMA, VERSION

    text = section(read("run-folder.md"), "record.sqlite")
    words = set(re.findall(r"\b[a-z]+\b", re.sub(r"--.*", "", SCHEMA)))
    assert {"reading", "nonfinite", "facts"} <= words
    assert missing([*words, f"`PRAGMA user_version` {VERSION}"], text) == []


def test_every_stream_of_randomness_is_documented() -> None:
    assert missing((f"`{stream}`" for stream in keys.STREAMS), read("exactness.md")) == []


def exit_codes() -> set[int]:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    raised = {kind.exit_code for kind in classes if issubclass(kind, errors.SafelightError)}
    returned = set(map(int, re.findall(r"return _fail\(.*, (\d+)\)", source("cli/__init__.py"))))
    return {0, PREEMPTED, BROKEN_PIPE} | raised | returned | {128 + number for number in STOP_SIGNALS}


def test_every_exit_code_and_error_is_documented() -> None:
    text = read("errors.md")
    rows = {code for row in re.findall(r"^\| ([\d, ]+) \|", text, re.M) for code in row.split(", ")}
    assert rows == set(map(str, exit_codes()))
    names = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    assert missing((f"`{name}`" for name in names), text) == []


# The library


def parameters(function: str) -> list[str]:
    """Of a function of the library, read from its source."""
    for node in ast.parse(source("library.py")).body + ast.parse(source("watching/opening.py")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return [a.arg for a in (*node.args.args, *node.args.kwonlyargs)]
    raise AssertionError(f"no function {function}")


@pytest.mark.parametrize("function", ["train", "resume", "open", "watch"])
def test_every_argument_of_the_library_is_documented(function: str) -> None:
    text = section(read("library.md"), f"safelight.{function}")
    assert text
    assert missing(parameters(function), text) == []


def test_the_short_names_are_documented() -> None:
    assert missing((f"`{name}`" for name in FLAGS), section(read("library.md"), "safelight.train")) == []


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_python_block_compiles_and_imports_what_exists(page: Path) -> None:
    from importlib import import_module

    for body in blocks(page.read_text(encoding="utf-8"), "python"):
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("safelight"):
                module = import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


# The layout


def parts() -> list[str]:
    """Packages and modules of safelight as CONTRIBUTING names them: `training/`, `keys.py`."""
    folders = [f"{path.parent.name}/" for path in (ROOT / "safelight").glob("*/__init__.py")]
    return folders + [path.name for path in (ROOT / "safelight").glob("*.py") if not path.name.startswith("_")]


def test_every_part_of_the_package_is_in_the_layout() -> None:
    text = section((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "Layout and the layer rule")
    assert {"training/", "keys.py"} < set(parts())
    assert missing((f"`{part}`" for part in [*parts(), "utils/"]), text) == ["`utils/`"]


# Links


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text)
    return [link for link in links if not re.match(r"[a-z]+:", link) and not resolves(page, link)]


def resolves(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return False
    if not anchor:
        return True
    headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
    return anchor in {slug(heading) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b.c` d\n[1](page.md) [2](none.md) [3](#a-bc-d) [4](page.md#none) [5](https://x)\n")
    assert broken_links(page) == ["none.md", "page.md#none"]


def test_every_page_is_on_the_map() -> None:
    links = set(re.findall(r"\]\(([\w-]+\.md)\)", read("index.md")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} == links


def test_every_rule_is_documented_in_its_own_words() -> None:
    from safelight.diagnosis.rules import RULES

    page = (Path(__file__).parents[1] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    rows = [f"| {rule.code} | {rule.cause} | {rule.title} | {rule.similar} |" for rule in RULES]
    assert [row for row in rows if row not in page] == []


def test_the_table_of_rules_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tools import rules_reference as rules

    page = ROOT / "docs" / "diagnosis.md"
    assert rules.main(["--check", str(page)]) == 0, f"run: {rules.COMMAND}"
    old = tmp_path / "diagnosis.md"
    old.write_text(page.read_text(encoding="utf-8").replace("LOS001", "LOS000"), encoding="utf-8")
    assert rules.main(["--check", str(old)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert rules.main([str(old)]) == 0
    assert rules.main(["--check", str(old)]) == 0
    with pytest.raises(ValueError, match="no <!-- rules -->"):
        rules.rewritten("# A page without markers")


def test_the_tests_that_the_page_on_security_names_are_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for file, test in named:
        source = ROOT / file
        assert source.is_file(), file
        assert f"def {test}" in source.read_text(encoding="utf-8"), f"{file} has no {test}"
