"""The debug build finds what is wrong, and says so (only `make debug` runs this)."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.shm.ring import RingEnd
from tests.debug.__main__ import environment
from tests.debug.building import BUILT, ROOT
from tests.imports import compiled_as

RING = """
from mmap import mmap
from mqcore.layout import sizes
from mqcore.shm.ring import RingEnd
memory = mmap(-1, sizes()["RING_CURSORS_SIZE"] + 64)
producer, consumer = RingEnd(memory, 64), RingEnd(memory, 64, consumer=True)
"""


def ended(script: str, folder: Path) -> tuple[int, str]:
    """Status and everything that a process of the debug build said, in its reports too."""
    done = subprocess.run([sys.executable, "-c", script], cwd=BUILT, env=environment(folder),
                          capture_output=True, text=True, timeout=60, check=False)
    reports = [path.read_text(errors="replace") for path in sorted(folder.iterdir())]
    return done.returncode, done.stdout + done.stderr + "".join(reports)


def test_the_package_under_test_is_the_debug_build() -> None:
    place = sys.modules[RingEnd.__module__].__file__

    assert place is not None
    assert Path(place).is_relative_to(BUILT)


def test_a_whole_ring_is_no_trouble(tmp_path: Path) -> None:
    assert ended(RING + "producer.send(b'one'); consumer.receive()", tmp_path) == (0, "")


@pytest.mark.parametrize(("wrong", "rule"), [
    # cursors: tail at 0, head at 128 (layout.pxd); a record's length stands before its bytes
    ("memory[128:136] = (80).to_bytes(8, 'little'); producer.send(b'one')", "R1"),
    ("producer.send(b'one'); memory[0:8] = (4096).to_bytes(8, 'little'); consumer.receive()", "R1"),
    ("producer.send(b'one'); memory[384:388] = (60).to_bytes(4, 'little'); consumer.receive()",
     "R3"),
])
def test_a_broken_ring_ends_the_process_with_the_rules_name(
        tmp_path: Path, wrong: str, rule: str) -> None:
    code, said = ended(RING + wrong, tmp_path)

    assert code < 0
    assert f"invariant {rule} is broken at " in said
    assert "mqcore/shm/ring.pyx:" in said


@pytest.mark.parametrize(("wrong", "report"), [
    ("RingEnd(memoryview(bytearray(512))[1:], 64).positions()", "misaligned address"),
    ("from mqcore.shm.ring import produce_fixed; produce_fixed(memory, 64, 1, -100)",
     "AddressSanitizer: negative-size-param"),
])
def test_what_the_language_leaves_undefined_is_reported_with_its_line(
        tmp_path: Path, wrong: str, report: str) -> None:
    code, said = ended(RING + wrong, tmp_path)

    assert code < 0
    assert report in said
    assert "mqcore/shm/ring.pyx:" in said


def test_every_native_module_is_watched() -> None:
    # those of the project: the debug build has no sources
    native = (ROOT / "mqcore").rglob("*.pyx")
    compiled = {compiled_as(path).relative_to(ROOT) for path in native}
    modules = {path: list(BUILT.glob(f"{path.with_suffix('')}.cpython-*.so")) for path in compiled}

    assert modules
    assert [path for path, found in modules.items()
            if len(found) != 1 or b"__asan_init" not in found[0].read_bytes()] == []
