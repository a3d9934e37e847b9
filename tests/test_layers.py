"""Imports point only downward, and nothing that could run foreign code is called anywhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import safelight

PACKAGE = Path(safelight.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up. A part may import from the lines below its own, and within itself. CONTRIBUTING has the same rows.
LAYERS = [
    ["vocabulary", "checks", "errors", "keys", "words", "origin"],
    ["files", "printing"],
    ["config"],
    ["run", "record", "data", "diffusion", "model", "pictures", "monitors"],
    ["outputs", "ranking"],
    ["generate", "export", "comparison", "diagnosis", "contact_sheet", "yardstick"],
    ["evaluate", "probes", "processes"],
    ["checkpoints", "pages", "capturing"],
    ["observing"],
    ["healing"],
    ["training", "watching"],
    ["terminal"],
    ["opened", "changes"],
    ["assessment"],
    ["trained"],
    ["rescue", "smaller_network"],
    ["runner"],
    ["start"],
    ["requirements", "handbook"],
    ["library"],
    ["cli", "pytest_plugin"],
    ["__main__"],
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

MOST_FILES = 20  # in one folder
MOST_IMPORTS = 20  # modules of ours that one file imports

LIGHT = ["vocabulary", "checks", "errors", "keys", "config", "run", "record", "terminal", "diagnosis", "comparison",
         "healing/alarms", "healing/journal", "healing/replays", "healing/step_settings", "healing/rates", "pages/data",
         "pages/server"]  # fmt: skip
HEAVY = {"torch", "diffusers", "accelerate", "safetensors", "PIL", "sklearn"}


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(source)))


@cache
def imported(source: str, package: str = "safelight") -> tuple[tuple[int, str], ...]:
    """(line, dotted name) of everything a file imports, wherever in it: inside functions and by name too."""
    return tuple(imported_by(nodes(source), package))


def imported_by(inside: Iterable[ast.AST], package: str = "safelight") -> Iterator[tuple[int, str]]:
    for node in inside:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                home = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*home, base]).rstrip(".")
            yield from ((node.lineno, f"{base}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("importlib.import_module", "import_module", "__import__"):
            yield from ((node.lineno, a.value) for a in node.args[:1] if isinstance(a, ast.Constant))


@cache
def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)


def is_light(file: Path, part: str) -> bool:
    name = file.relative_to(PACKAGE).with_suffix("").as_posix()
    return name == part or name.startswith(f"{part}/")


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def package_of(file: Path) -> str:
    return ".".join(["safelight", *file.relative_to(PACKAGE).parts[:-1]])


def wrong_way(source: str, part: str, package: str = "safelight") -> list[str]:
    """What of safelight a file imports that does not lie below it, in words."""
    found = []
    for line, name in imported(source, package):
        top, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if top != "safelight" or target == part or target not in RANK:
            continue  # another library, the same part, or a name of safelight/__init__.py such as __version__
        if RANK[target] >= RANK[part]:
            found.append(
                f"line {line} imports safelight.{target}, which does not lie below {part}. Imports point only "
                f"downward: {' < '.join(', '.join(layer) for layer in LAYERS)}. Move what both need further down, or "
                f"pass it in as an argument."
            )
    return found


# The face of the package names what lies above it, and imports it only when asked: tested by itself.
BELOW_THE_FACE = [file for file in FILES if file != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("file", BELOW_THE_FACE, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_only_downward(file: Path) -> None:
    part = part_of(file)
    assert part in RANK, (
        f"safelight/{part} has no place among the layers yet. Put it into LAYERS in tests/test_layers.py, above "
        "everything it imports and below everything that imports it."
    )
    found = wrong_way(SOURCES[module_of(file)], part, package_of(file))
    assert not found, f"safelight/{file.relative_to(PACKAGE)}: " + "\n".join(found)


def module_of(file: Path) -> tuple[str, ...]:
    return file.relative_to(PACKAGE).with_suffix("").parts


def units(files: dict[tuple[str, ...], str], package: tuple[str, ...]) -> dict[str, set[str]]:
    """The modules and folders directly inside a package, and which of each other they import."""
    found: dict[str, set[str]] = {}
    for module, source in files.items():
        if module[: len(package)] != package or (module[-1] == "__init__" and len(module) == len(package) + 1):
            continue
        unit = module[len(package)]
        inside = ".".join(("safelight", *package)) + "."
        targets = {
            name.removeprefix(inside).partition(".")[0]
            for _, name in imported(source, ".".join(("safelight", *module[:-1])))
            if name.startswith(inside)
        }
        found.setdefault(unit, set()).update(targets - {unit})
    return {unit: {target for target in targets if target in found} for unit, targets in found.items()}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Units that import each other in a ring; none where all imports have one direction."""
    left = dict(graph)
    while free := [unit for unit, targets in left.items() if not targets & left.keys()]:
        for unit in free:
            del left[unit]
    return sorted(left)


SOURCES = {module_of(file): file.read_text() for file in FILES}
PACKAGES = sorted({module[:-1] for module in SOURCES if len(module) > 1})


@pytest.mark.parametrize("package", PACKAGES, ids=".".join)
def test_imports_have_one_direction_inside_a_package(package: tuple[str, ...]) -> None:
    found = cycle(units(SOURCES, package))
    assert not found, f"In safelight/{'/'.join(package)} these import each other in a ring: {', '.join(found)}."


def test_a_ring_is_seen() -> None:
    sources = {
        ("train", "a"): "from safelight.train.b import x",
        ("train", "b", "c"): "from safelight.train import d",
        ("train", "d"): "from safelight.train.a import y",
        ("train", "e"): "from safelight.train.a import y",
    }
    assert cycle(units(sources, ("train",))) == ["a", "b", "d", "e"]
    sources["train", "d"] = "import torch"
    assert cycle(units(sources, ("train",))) == []


@pytest.mark.parametrize("package", PACKAGES, ids=".".join)
def test_no_package_is_crowded(package: tuple[str, ...]) -> None:
    inside = [module for module in SOURCES if module[:-1] == package and module[-1] != "__init__"]
    assert len(inside) <= MOST_FILES, f"{len(inside)} files in safelight/{'/'.join(package)}: give it a wall."


MODULES_OF_OURS = {".".join(("safelight", *module)).removesuffix(".__init__") for module in SOURCES}


def own_modules(source: str, package: str) -> set[str]:
    """The modules of safelight that a file imports."""
    names = [name for _, name in imported(source, package)]
    return {name if name in MODULES_OF_OURS else name.rpartition(".")[0] for name in names} & MODULES_OF_OURS


@pytest.mark.parametrize("file", BELOW_THE_FACE, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_file_imports_too_much(file: Path) -> None:
    found = own_modules(SOURCES[module_of(file)], package_of(file)) - {"safelight"}
    assert len(found) <= MOST_IMPORTS, f"{file.relative_to(PACKAGE)} imports {len(found)}: {sorted(found)}."


def test_imports_are_counted() -> None:
    source = "from safelight.config import Config, check\nimport torch\nfrom ..training import step, loop"
    expected = {"safelight.config", "safelight.config.check", "safelight.training.step", "safelight.training.loop"}
    assert own_modules(source, "safelight.watching") == expected


def class_names(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Where each class is defined, by its name."""
    found: dict[str, list[str]] = {}
    for file, source in sources.items():
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(file)
    return found


def test_each_class_has_a_name_of_its_own() -> None:
    """But for the `Command` of each file of `cli/`."""
    sources = {str(file.relative_to(PACKAGE)): SOURCES[module_of(file)] for file in FILES}
    twice = {name: files for name, files in class_names(sources).items() if len(files) > 1 and name != "Command"}
    assert not twice


def test_classes_of_one_name_are_found() -> None:
    sources = {"a.py": "class Line: ...", "b.py": "class Line: ...\nclass Other: ..."}
    assert class_names(sources) == {"Line": ["a.py", "b.py"], "Other": ["b.py"]}


def test_contributing_has_the_same_layers() -> None:
    page = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("| layer | what it owns |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([\w/]+?)(?:\.py|/)`", line.split("|")[1]) for line in table.splitlines()[2:]]
    assert rows[::-1] == [layer for layer in LAYERS if layer != ["__main__"]]


@pytest.mark.parametrize(
    ("source", "part", "wrong"),
    [
        ("import safelight.training", "config", True),
        ("from safelight.training.ema import Averages", "diffusion", True),
        ("def f():\n    from safelight import start", "training", True),
        ("if TYPE_CHECKING:\n    from safelight.cli import main", "library", True),
        ("import importlib\nimportlib.import_module('safelight.library')", "training", True),
        ("from safelight.data import sources", "model", True),  # neighbours
        ("from ..cli import main", "training", True),
        ("from safelight.config import Config", "training", False),
        ("from safelight import __version__", "config", False),
        ("from safelight.files import RunLock", "training", False),
        ("from .files import RunLock", "training", False),
        ("import torch", "training", False),
        ("from safelight import keys", "cli", False),
    ],
)
def test_the_check_sees_what_it_should(source: str, part: str, wrong: bool) -> None:
    assert bool(wrong_way(source, part, f"safelight.{part}")) == wrong


def test_the_face_of_the_package_imports_nothing_at_once() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    at_once = ast.Module([node for node in tree.body if not isinstance(node, ast.If)], [])
    assert {name.partition(".")[0] for _, name in imported_by(ast.walk(at_once))} <= {
        "__future__",
        "typing",
        "importlib",
    }


@pytest.mark.parametrize("part", LIGHT)
def test_light_parts_do_not_import_torch(part: str) -> None:
    """Rules, dashboard, report and `--help` read the record and the config; they must not wait for torch."""
    for file in [f for f in FILES if is_light(f, part)]:
        heavy = [f"line {n}: {name}" for n, name in imported(SOURCES[module_of(file)]) if name.split(".")[0] in HEAVY]
        assert not heavy, (
            f"{file} belongs to a part that must stay light, but imports {heavy}. Move that to a part above."
        )


def test_light_parts_are_light_in_practice() -> None:
    """Also not by way of something else."""
    modules = [
        ".".join(["safelight", *f.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
        for f in FILES
        if any(is_light(f, part) for part in LIGHT)
    ]
    script = f"import sys, {', '.join(modules)}; print(*sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "compile", "torch.load", "torch.save", "os.system", "os.popen"}
YAML = {"load", "load_all", "full_load", "unsafe_load", "Loader", "FullLoader", "UnsafeLoader"}


def dangers(source: str) -> list[str]:
    """What could run code that lies in a file, or call a shell."""
    found = [f"line {n} imports {name}" for n, name in imported(source) if MODULES & set(name.split("."))]
    found += [f"line {n} imports {name}" for n, name in imported(source) if name in CALLS or name == "yaml.load"]
    for node in nodes(source):
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in CALLS or name.endswith((".load_pickle", "pickle.load")):
                found.append(f"line {node.lineno} calls {name}")
            words = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            for key in ("allow_pickle", "shell", "trust_remote_code"):
                if words.get(key) is True:
                    found.append(f"line {node.lineno} passes {key}=True")
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "yaml" and node.attr in YAML:
            found.append(f"line {node.lineno} uses yaml.{node.attr}")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_nothing_can_run_foreign_code(file: Path) -> None:
    found = dangers(SOURCES[module_of(file)])
    assert not found, (
        f"{file}: {found}. A file that safelight opens must never run code: tensors are safetensors, state is JSON, "
        "configs are yaml.SafeLoader."
    )


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("import pickle", True),
        ("from pickle import loads", True),
        ("import torch\ntorch.load('x')", True),
        ("from torch import load", True),
        ("torch.load('x', weights_only=True)", True),
        ("eval('1')", True),
        ("exec('1')", True),
        ("import yaml\nyaml.load(x, Loader=yaml.SafeLoader)", True),
        ("import yaml\nyaml.unsafe_load(x)", True),
        ("class L(yaml.Loader): pass", True),
        ("np.load(x, allow_pickle=True)", True),
        ("subprocess.run(x, shell=True)", True),
        ("import yaml\nyaml.safe_load(x)", False),
        ("class L(yaml.SafeLoader): pass", False),
        ("model.eval()", False),
        ("re.compile('x')", False),
        ("torch.compile(model)", False),
        ("json.load(x)", False),
        ("safetensors.torch.load(x)", False),
        ("np.load(x)", False),
    ],
)
def test_the_search_sees_what_it_should(source: str, wrong: bool) -> None:
    assert bool(dangers(source)) == wrong


# What changes files, and where it may be called by itself: everything else goes through `safelight/files`, which
# follows no link, or `safelight/outputs.py`.
CHANGES = {"write_text", "write_bytes", "unlink", "rename", "replace", "rmtree", "mkdir", "makedirs", "remove",
           "symlink_to", "touch", "truncate", "tofile", "connect"}  # fmt: skip
OF_PATHS = {"write_text", "write_bytes", "mkdir", "symlink_to", "touch", "tofile"}  # methods of nothing else
ALONE = {
    ("run.py", "os.rename"): "moves a used folder aside, beside it",
    ("run.py", "os.replace"): "the link `latest`, beside the run",
    ("run.py", "temporary.symlink_to"): "the link `latest`, beside the run",
    ("cli/flags/options.py", "folder.mkdir"): "a folder that the user named",
    ("printing.py", "open"): "the null device, and a crash file of a new name",
    ("printing.py", "folder.mkdir"): "the folder of crash files, of this user alone",
    ("export.py", "(out / 'README.md').write_text"): "a temporary folder of this process",
    ("watching/scripts/notes.py", "path.write_text"): "a temporary folder of this process",
    ("record/database.py", "sqlite3.connect"): "after files.database looked at it",
    ("record/reading.py", "sqlite3.connect"): "after files.database looked at it",
    ("record/restoration.py", "sqlite3.connect"): "a new file under a temporary name",
    ("record/schema.py", "sqlite3.connect"): "in memory",
    ("data/listing.py", "sqlite3.connect"): "in a folder that was made just now, or read only",
}


def changes_of_files(source: str) -> list[str]:
    """Calls that change files, as they are written."""
    found = []
    for node in nodes(source):
        if not isinstance(node, ast.Call):
            continue
        name = _called(node)
        home, _, last = name.rpartition(".")
        given = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "mode")]
        modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        writes = last == "open" and any(set(mode) & set("wax+") for mode in modes)
        if writes or last in OF_PATHS or (last in CHANGES and home in ("os", "shutil", "sqlite3")):
            found.append(name)
    return found


INSIDE = [file for file in FILES if part_of(file) not in ("files", "outputs")]


@pytest.mark.parametrize("file", INSIDE, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_files_are_changed_in_one_place(file: Path) -> None:
    name = file.relative_to(PACKAGE).as_posix()
    found = [call for call in changes_of_files(SOURCES[module_of(file)]) if (name, call) not in ALONE]
    found = [call for call in found if (name, call) != ("cli/__init__.py", "open")]  # /dev/null
    assert not found, (
        f"safelight/{name} calls {found}. What is written below a run or cache folder goes through safelight/files "
        "(write_atomically, create_file, make_directories, remove_tree, with the disk of the folder), what a user "
        "asked for through safelight/outputs.py."
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("open(path, 'w')", ["open"]),
        ("open(path, mode='ab')", ["open"]),
        ("path.open('rb')", []),
        ("open(path)", []),
        ("path.write_text('x')", ["path.write_text"]),
        ("os.replace(a, b)", ["os.replace"]),
        ("text.replace(a, b)", []),
        ("shutil.rmtree(a)", ["shutil.rmtree"]),
        ("disk.rename(a, b)", []),
    ],
)
def test_the_search_for_changes_sees_what_it_should(source: str, found: list[str]) -> None:
    assert changes_of_files(source) == found
