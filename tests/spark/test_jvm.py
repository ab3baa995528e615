"""What sessions load may be ready in a file; without it, or with another's, they start as ever."""
from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.spark import jvm
from tests.support.ci import unavailable


def test_a_file_of_classes_is_named_where_it_is_and_a_wrong_one_is_ignored(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        unavailable("needs Java 17")
    monkeypatch.setattr(jvm, "FOLDER", tmp_path)
    without = jvm.jvm_options()
    jvm.class_archive().write_bytes(b"of another Java")

    assert jvm.jvm_options() == f"{without} -XX:SharedArchiveFile={jvm.class_archive()}"
    subprocess.run(["java", *shlex.split(jvm.jvm_options()), "-version"], check=True,
                   capture_output=True, timeout=120)
