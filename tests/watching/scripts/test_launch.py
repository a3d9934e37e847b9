"""A script under `safelight run` is the script under python: the same output, exit code and files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from awkward_scripts import FACTS, SCRIPTS, Script

from safelight.errors import UsageError
from safelight.watching.scripts import launch
from safelight.watching.scripts.check import check_script
from safelight.watching.scripts.launch import Options, run_script

ROOT = Path(__file__).parents[3]
OURS = "Safelight"
ADDRESS = re.compile("0x[0-9a-f]+")


def lay_out(script: Script, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in {"main.py": script.text, **script.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == "ZIP":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("__main__.py", "import sys\nprint(sys.argv, __file__)\nraise SystemExit(0)")
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def run(script: Script, folder: Path, *command: str) -> tuple[int, str, list[str], dict[str, bytes]]:
    """(exit code, stdout, lines of stderr that are not ours, files that were written)."""
    lay_out(script, folder)
    paths = [script.environment.get("PYTHONPATH", ""), str(ROOT)]
    environment = os.environ | script.environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONUNBUFFERED", None)
    read, write = os.pipe()
    if script.stdout == "broken":
        os.close(read)
    done = subprocess.run(
        [sys.executable, *script.flags, *command, *script.target],
        cwd=folder, env=environment, input=script.stdin,
        stdout=write if script.stdout == "broken" else subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: close(script), timeout=120, check=False,
    )  # fmt: skip
    os.close(write)
    if script.stdout != "broken":
        os.close(read)
    told = ADDRESS.sub("0x", done.stderr.decode(errors="replace"))
    lines = [line for line in told.splitlines() if not line.startswith(OURS)]
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return done.returncode, ADDRESS.sub("0x", (done.stdout or b"").decode("latin-1")), lines, files


def close(script: Script) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if script.stdin is None:
        os.close(0)
    if script.stdout == "closed":
        os.close(1)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name.replace(" ", "-"))
def test_a_script_runs_as_python_would_run_it(script: Script, tmp_path: Path) -> None:
    plain = run(script, tmp_path / "at")
    watched = run(script, tmp_path / "at", "-m", "safelight", "run")
    assert plain[0] == script.code, plain
    assert watched == plain


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("python -m safelight run a.py", ""),
        ("python -u -O -m safelight run a.py", "-u -O"),
        ("python -W error -X dev -m safelight run a.py", "-W error -X dev"),
        ("python -um safelight run a.py", "-u"),
        ("python -msafelight run a.py", ""),
        ("python -Bumsafelight run a.py", "-Bu"),
        ("python /bin/safelight run a.py", ""),
        ("python -X m /bin/safelight run a.py", "-X m"),
        ("python -m safelight run -m safelight", ""),
    ],
)
def test_options_of_python_are_taken_over(command: str, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = command.split()
    given = len(words) - words.index("run")
    program = "/bin/safelight" if "/bin/safelight" in words else "/site/safelight/__main__.py"
    monkeypatch.setattr(sys, "orig_argv", words)
    monkeypatch.setattr(sys, "argv", [program, *words[-given:]])
    assert launch.interpreter_flags() == flags.split()


def environment_of(before: str | None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str | None]:
    if before is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", before)
    found = launch.environment_for(launch.Options())
    return found["PYTHONPATH"].replace(launch.BOOTSTRAP, "HOOK"), found.get("SAFELIGHT_PYTHONPATH")


def test_an_empty_path_does_not_become_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_of(None, monkeypatch) == ("HOOK", None)
    assert environment_of("", monkeypatch) == ("HOOK", "")
    assert environment_of("a:b", monkeypatch) == ("HOOK:a:b", "a:b")


@pytest.mark.parametrize(
    ("variables", "first"),
    [({}, True), ({"RANK": "0"}, True), ({"RANK": "1"}, False), ({"RANK": "0", "SLURM_PROCID": "3"}, True),
     ({"SLURM_PROCID": "3"}, False), ({"OMPI_COMM_WORLD_RANK": "1"}, False), ({"RANK": ""}, True)],
)  # fmt: skip
def test_the_first_process_is_known_by_its_launcher(
    variables: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in launch.RANKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launch.is_first_by_environment() == first


@pytest.mark.parametrize(
    ("variables", "handed_over"),
    [({}, False), ({"RANK": "1"}, True), ({"RANK": "1", "SAFELIGHT": "off"}, None), ({"SAFELIGHT": "off"}, None)],
)
def test_the_others_are_told_that_they_are(
    variables: dict[str, str], handed_over: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in launch.RANKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(launch, "run_inside", lambda command, environment: seen.append(environment) or 0)
    launch.run_script(launch.Options(), ["main.py"], owns_process=False)
    given = seen[0].get("SAFELIGHT_RUN")
    assert (None if given is None else json.loads(given)["is_member"]) == handed_over


@pytest.mark.parametrize("variables", [{"SAFELIGHT": "off"}, {"RANK": "1"}], ids=str)
def test_a_process_that_is_not_watched_says_nothing(variables: dict[str, str], tmp_path: Path) -> None:
    script = Script("facts", FACTS, environment=variables)
    watched = run(script, tmp_path / "at", "-m", "safelight", "run")
    assert watched == run(script, tmp_path / "at")
    assert "Safelight" not in subprocess.run(
        [sys.executable, "-m", "safelight", "run", "main.py"], cwd=tmp_path / "at", capture_output=True, text=True,
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)}, check=True,
    ).stderr  # fmt: skip


def test_an_isolated_python_is_refused_in_words(tmp_path: Path) -> None:
    hook = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from safelight.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-I", "-c", hook, "run", "a.py"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "-I, -E or -S" in done.stderr


@pytest.mark.parametrize(
    ("run", "target", "words"),
    [
        (None, ["a\0b"], "NUL"), (None, ["t.py", "a\0b"], "NUL"), ("", ["t.py"], "--run is ''"),
        ("a\0b", ["t.py"], "no name of a folder"), ("t.py", ["t.py"], "not a folder"),
        ("/dev/null", ["t.py"], "not a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_is_refused_before_the_script(
    run: str | None, target: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(UsageError, match=words):
        run_script(Options(run=run), target, owns_process=False)
    with pytest.raises(UsageError, match=words):
        check_script(Options(run=run), target, owns_process=False)
