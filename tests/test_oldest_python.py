"""
Nothing here needs more than the first Python 3.11: Debian 12 has 3.11.2, in which possessive groups
of expressions go wrong (until 3.11.5) and archives know no filter (until 3.11.4).
"""
from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.store import golden

ROOT = Path(__file__).parents[1]
# -- a group that is repeated or matched for good; one character or class that is, is right
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")
TEXT = re.compile(r"""\br?"(?:[^"\\\n]|\\.)*"|\br?'(?:[^'\\\n]|\\.)*'""")
SOURCES = [path for folder in ("mqcore", "workers", "config")
           for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_expression_has_a_possessive_group() -> None:
    assert POSSESSIVE_GROUP.search(r"(?:a|b)*+")
    assert POSSESSIVE_GROUP.search("(?>a)")
    assert not POSSESSIVE_GROUP.search(r"(?:[0-9]++)?,[a-z]*+")
    found = {f"{path.relative_to(ROOT)}: {text}"
             for path in SOURCES for text in TEXT.findall(path.read_text(encoding="utf-8"))
             if POSSESSIVE_GROUP.search(text)}

    assert len(SOURCES) > 100
    assert found == set()


def test_recordings_are_unpacked_where_archives_know_no_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpacked: list[Path] = []

    def extractall(archive: tarfile.TarFile, path: Path) -> None:
        unpacked.append(path)

    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)

    assert golden.unpack("basic", tmp_path) == tmp_path / "basic"
    assert unpacked == [tmp_path]


def test_make_says_that_a_python_is_too_old(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
[ "$1" = -c ] && exec {shlex.quote(sys.executable)} -c "import sys; sys.version_info = (3, 10, 13)
$2"
exit 99
""")
    python.chmod(0o755)
    done = subprocess.run(["make", "-f", ROOT / "Makefile", f"PYTHON={python}", "build"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert f"{python} is Python 3.10; mqcore needs 3.11 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()
