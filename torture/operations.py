"""What a disk was asked to do, in order, and every state that a power loss could leave of it."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.disks import QuickDisk


@dataclass(frozen=True)
class Op:
    """One change of the disk; files and folders are numbers, so that it can be replayed in another order."""

    kind: str  # mkdir create size write sync syncdir rename remove mark
    node: int  # the file, or the directory whose names change or are synced
    name: str = ""
    child: int = 0
    to: str = ""
    offset: int = 0
    content: bytes = b""
    mark: Any = None

    @property
    def is_data(self) -> bool:
        return self.kind in ("size", "write")

    @property
    def is_naming(self) -> bool:
        return self.kind in ("mkdir", "create", "rename", "remove")


class RecordingDisk(QuickDisk):
    """Does everything for real below `root`, and writes down what a power loss could take back."""

    def __init__(self, root: Path) -> None:
        self.root, self.log, self.names = root, list[Op](), {0: dict[str, int]()}
        self._numbers = itertools.count(1)
        self._open: dict[int, list[int]] = {}

    def mark(self, value: Any) -> None:
        self.log.append(Op("mark", 0, mark=value))

    def _parent(self, path: Path) -> int:
        return self._node(path.parent)

    def _node(self, path: Path) -> int:
        return functools.reduce(lambda node, name: self.names[node][name], path.relative_to(self.root).parts, 0)

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        number = next(self._numbers)
        self.names[number] = {}
        self._add("mkdir", path, number)

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        number = next(self._numbers)
        self._add("create", path, number)
        self._open[descriptor] = [number, 0]
        return descriptor

    def _add(self, kind: str, path: Path, number: int) -> None:
        parent = self._parent(path)
        self.names[parent][path.name] = number
        self.log.append(Op(kind, parent, name=path.name, child=number))

    def allocate(self, descriptor: int, size: int) -> None:
        super().allocate(descriptor, size)
        self.log.append(Op("size", self._open[descriptor][0], offset=size))

    def write(self, descriptor: int, content: memoryview) -> int:
        written = super().write(descriptor, content)
        number, offset = self._open[descriptor]
        self.log.append(Op("write", number, offset=offset, content=bytes(content[:written])))
        self._open[descriptor][1] += written
        return written

    def sync(self, descriptor: int) -> None:
        self.log.append(Op("sync", self._open[descriptor][0]))

    def sync_directory(self, path: Path) -> None:
        self.log.append(Op("syncdir", self._node(path)))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        assert source.parent == target.parent
        parent = self._parent(source)
        number = self.names[parent].pop(source.name)
        self.names[parent][target.name] = number
        self.log.append(Op("rename", parent, name=source.name, to=target.name, child=number))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._remove(path)

    def remove_directory(self, path: Path) -> None:
        super().remove_directory(path)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        parent = self._parent(path)
        self.log.append(Op("remove", parent, name=path.name, child=self.names[parent].pop(path.name)))


Tree = tuple[tuple[str, Any], ...]  # sorted (name, bytes or Tree): what a disk holds
Fate = dict[int, int]  # number of an operation -> what became of it
KEEP, LOSE, TEAR = 0, 1, 2
HIDDEN = (".tmp-", ".trash-")  # folders that loading must not look into
MOST_FATES = 1_000  # per moment; beyond, fates are drawn


def power_losses(log: list[Op]) -> Iterator[tuple[Any, Tree, bool]]:
    """Every moment × every fate of what was not yet synced: (last mark, what the disk holds, all were tried).

    Names and data are independent, in any order and any subset, as POSIX allows: fsync of a file does not
    make its name durable, and fsync of a folder does not make its files durable. Inside folders that can only
    have a hidden name, not every subset is tried: all kept, all lost, all torn and two draws.
    """
    seen: set[tuple[Any, Tree]] = set()
    for moment in range(len(log) + 1):
        past = log[:moment]
        mark = next((op.mark for op in reversed(past) if op.kind == "mark"), None)
        fates, complete = _fates(past)
        for fate in fates:
            tree = _replay(past, fate)
            if (mark, tree) not in seen:
                seen.add((mark, tree))
                yield mark, tree, complete


def _durable(past: list[Op]) -> list[bool]:
    """Whether an operation was made durable by a later sync of its file or folder."""
    synced: dict[tuple[str, int], int] = {}
    for i, op in enumerate(past):
        if op.kind in ("sync", "syncdir"):
            synced[op.kind, op.node] = i
    return [i < synced.get(("sync" if op.is_data else "syncdir", op.node), -1) for i, op in enumerate(past)]


def _hidden_nodes(past: list[Op], durable: list[bool]) -> set[int]:
    """Folders that have a hidden name (or none) whatever is lost, and the files inside."""
    possible: dict[int, list[str]] = {0: ["root"]}
    for op, certain in zip(past, durable, strict=True):
        if op.is_naming:
            names = [] if certain else possible.get(op.child, [])
            possible[op.child] = [*names, {"rename": op.to, "remove": ".trash-"}.get(op.kind, op.name)]
    hidden = {node for node, names in possible.items() if all(name.startswith(HIDDEN) for name in names)}
    return hidden | {op.child for op in past if op.kind == "create" and op.node in hidden}


def _fates(past: list[Op]) -> tuple[Iterator[Fate], bool]:
    durable = _durable(past)
    hidden = _hidden_nodes(past, durable)
    loose = [i for i, op in enumerate(past) if (op.is_data or op.is_naming) and not durable[i]]
    seen = [i for i in loose if past[i].node not in hidden]
    unseen = [i for i in loose if past[i].node in hidden]
    draw = random.Random(len(past))
    choices = {i: (KEEP, LOSE, TEAR) if past[i].kind == "write" else (KEEP, LOSE) for i in loose}

    def drawn(which: list[int]) -> Fate:
        return {i: draw.choice(choices[i]) for i in which}

    if math.prod(len(choices[i]) for i in seen) > MOST_FATES:
        corners = [dict.fromkeys(loose, fate) for fate in (KEEP, LOSE)]
        single = [dict.fromkeys(loose, rest) | {i: one} for i in loose for one, rest in ((KEEP, LOSE), (LOSE, KEEP))]
        return iter(corners + single + [drawn(loose) for _ in range(50)]), False
    inside = [dict.fromkeys(unseen, KEEP), dict.fromkeys(unseen, LOSE)]
    inside += [{i: choices[i][-1] if past[i].kind == "write" else KEEP for i in unseen}]
    inside += [drawn(unseen), drawn(unseen)]
    every = (dict(zip(seen, fate, strict=True)) for fate in itertools.product(*(choices[i] for i in seen)))
    return (fate | rest for fate in every for rest in (inside if unseen else [{}])), True


def _replay(past: list[Op], fate: Fate) -> Tree:
    names: dict[int, dict[str, int]] = {0: {}}
    data: dict[int, bytearray] = {}
    for i, op in enumerate(past):
        if fate.get(i) == LOSE:
            continue
        here = names.setdefault(op.node, {})
        if op.kind in ("mkdir", "create"):
            here[op.name] = op.child
            (names if op.kind == "mkdir" else data).setdefault(op.child, {} if op.kind == "mkdir" else bytearray())  # type: ignore[arg-type]
        elif op.kind == "rename":
            if here.get(op.name) == op.child:
                del here[op.name]
            here[op.to] = op.child
        elif op.kind == "remove" and here.get(op.name) == op.child:
            del here[op.name]
        elif op.is_data:
            _change(data.setdefault(op.node, bytearray()), op, fate.get(i, KEEP))
    directories = {op.child for op in past if op.kind == "mkdir"} | {0}
    return _tree(0, names, data, directories)


def _change(content: bytearray, op: Op, fate: int) -> None:
    new = op.content[: len(op.content) // 2] if fate == TEAR else op.content
    end = op.offset + len(new)
    content.extend(bytes(max(end - len(content), 0)))
    if op.kind == "write":
        content[op.offset : end] = new


def _tree(node: int, names: dict[int, Any], data: dict[int, bytearray], directories: set[int]) -> Tree:
    return tuple(
        (
            name,
            _tree(child, names, data, directories) if child in directories else bytes(data.get(child, b"")),
        )
        for name, child in sorted(names.get(node, {}).items())
    )


def put_on_disk(tree: Tree, folder: Path) -> None:
    folder.mkdir()
    for name, content in tree:
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            put_on_disk(content, folder / name)


def without_file_syncs(log: list[Op]) -> list[Op]:
    return [op for op in log if op.kind != "sync"]


def without_directory_syncs(log: list[Op]) -> list[Op]:
    return [op for op in log if op.kind != "syncdir"]


def without_sync_of_deletion(log: list[Op]) -> list[Op]:
    """As if files were deleted right after the rename to .trash-*."""
    after_trash = {i + 1 for i, op in enumerate(log) if op.to.startswith(".trash-")}
    return [op for i, op in enumerate(log) if not (op.kind == "syncdir" and i in after_trash)]


def flushed_after_sync(log: list[Op]) -> list[Op]:
    """The bug of torch.distributed.checkpoint: bytes leave the process when the file was already synced."""
    result = list(log)
    for op in [op for op in log if op.kind == "sync"]:
        result.remove(op)
        result.insert(next(i for i, other in enumerate(result) if other.is_data and other.node == op.node), op)
    return result


def committed_first(log: list[Op]) -> list[Op]:
    """The manifest is written and the folder renamed; the files it names follow."""
    return _manifest_moved(log, past_rename=True)


def manifest_first(log: list[Op]) -> list[Op]:
    """The manifest before its files, but all of it before the rename: harmless, the rename is what counts."""
    return _manifest_moved(log, past_rename=False)


def _manifest_moved(log: list[Op], past_rename: bool) -> list[Op]:
    result: list[Op] = []
    save: list[Op] = []
    for i, op in enumerate(log):
        save.append(op)
        into_place = op.kind == "syncdir" and log[i - 1].kind == "rename" and log[i - 1].to.startswith("step_")
        if into_place:
            names = {o.child: o.name for o in save if o.kind == "create"}
            files = {child for child, name in names.items() if name != "manifest.json"}
            late = [o for o in save if (o.kind == "create" and o.child in files) or o.node in files]
            early = [o for o in save if o not in late]
            cut = next(i for i, o in enumerate(early) if o.kind == "syncdir" and o.node in _folders(save))
            result += early + late if past_rename else early[:cut] + late + early[cut:]
            save = []
    return result + save


def _folders(save: list[Op]) -> set[int]:
    """The folders whose names were made in this save: the temporary one."""
    return {op.node for op in save if op.kind == "create"}
