"""
mqcore/__init__.py: native modules of a room, which are compiled as one, are imported under their
own names as others are: by several threads at once, and again after an import that failed.
"""
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import UNIT, module_of

ROOT = Path(__file__).parents[1]
UNITS = sorted(module_of(path) for path in (ROOT / "mqcore").rglob(f"{UNIT}.pyx"))
# -- `mmap` is asked for in the middle of mqcore.shm._native
MIDDLE = """
import importlib.machinery, sys
sys.modules.pop("mmap", None)
class Middle:
    def find_spec(name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, Middle) if name == "mmap" else None
    def create_module(spec):
        return None
    def exec_module(module):
        sys.meta_path.remove(Middle)
        meet(module)
        module.mmap = None
sys.meta_path.insert(0, Middle)
"""
OTHER_THREAD = """
import threading, time, traceback
found = []
def other():
    try:
        from mqcore.shm.tables import TableFullError
        found.append(TableFullError.__name__)
    except BaseException:
        found.append(traceback.format_exc())
def waits():
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>" and (
        frame.f_code.co_name in ("acquire", "__enter__"))
def meet(module):
    thread.start()
    until = time.monotonic() + 60
    while thread.is_alive() and not waits() and time.monotonic() < until:
        pass
thread = threading.Thread(target=other)
from mqcore.shm.segment import Segment
thread.join()
print(*found)
"""
AGAIN = """
def meet(module):
    raise KeyboardInterrupt
try:
    import mqcore.shm.segment
except KeyboardInterrupt:
    print(sorted(name for name in sys.modules if name.startswith("mqcore.shm.")))
from mqcore.shm.segment import Segment
from mqcore.shm.ring import RingEnd
print(Segment.__name__, RingEnd.__name__)
"""
NAMES = """
import importlib, importlib.util, pkgutil, sys
import mqcore.shm.ring
from mqcore.shm import ring
assert mqcore.shm.ring is ring is sys.modules["mqcore.shm.ring"] is mqcore.shm._native
assert pkgutil.resolve_name("mqcore.shm.ring.RingEnd") is ring.RingEnd
assert importlib.reload(ring) is ring
assert importlib.util.find_spec("mqcore.shm.segment").origin == ring.__file__
for name in ("mqcore.shm.nothing", "mqcore.client.nothing", "mqcore.nothing",
             "mqcore.shm._native.x"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name == name, error.name
    assert name not in sys.modules
"""


def output_of(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_thread_that_asks_while_another_imports_is_given_a_whole_module() -> None:
    assert output_of(MIDDLE + OTHER_THREAD) == "TableFullError\n"


def test_after_an_import_that_failed_there_is_no_half_of_a_module() -> None:
    assert output_of(MIDDLE + AGAIN) == "[]\nSegment RingEnd\n"


def test_a_module_of_a_room_is_found_in_every_way_in_which_modules_are() -> None:
    assert output_of(NAMES) == ""


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_room_is_made_of_does_not_ask_for_itself(unit: str) -> None:
    """
    A thread in it that asks for one of its names would wait for a thread that has asked for that
    name, and waits for it.
    """
    room = unit.rpartition(".")[0]
    assert output_of(f"import sys, {unit}; members = {unit}.MEMBERS\n"
                     f"print(len(members) > 1, [name for name in members if "
                     f"'{room}.' + name in sys.modules])") == "True []\n"

