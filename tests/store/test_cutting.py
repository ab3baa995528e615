"""A store that is cut leaves the segments to whom they belong besides: backups."""
from __future__ import annotations

import os
from pathlib import Path

from mqcore.store.cutting import cut_log
from mqcore.store.log.folders import LogFolders

SIZE = 4096


def test_a_segment_that_a_backup_has_too_keeps_its_bytes_there(tmp_path: Path) -> None:
    folder, kept = tmp_path / "commitlog", tmp_path / "backup"
    folder.mkdir()
    segments = [folder / f"{number * SIZE:020d}" for number in range(2)]
    for number, path in enumerate(segments):
        path.write_bytes(bytes([number + 1]) * SIZE)
    os.link(segments[0], kept)

    cut_log(LogFolders((folder,), store=tmp_path), SIZE, 1000)

    assert kept.read_bytes() == b"\x01" * SIZE
    assert segments[0].read_bytes() == b"\x01" * 1000 + bytes(SIZE - 1000)
    assert list(folder.iterdir()) == [segments[0]]
