"""What one process leaves for another."""

from __future__ import annotations

from pathlib import Path

from safelight.watching.scripts.notes import Notes


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    notes = Notes(7, "late", ("UNet", "flow, noise − x0"), ("said",), True)
    notes.write(tmp_path / "notes")
    assert Notes.read(tmp_path / "notes") == notes


def test_no_notes_are_none(tmp_path: Path) -> None:
    assert Notes.read(tmp_path / "nothing") is None
    (tmp_path / "cut").write_text('{"updates": 7, "end')
    assert Notes.read(tmp_path / "cut") is None
