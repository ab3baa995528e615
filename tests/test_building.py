"""
setup.py: its way of translating many modules leaves each C file as Cython makes it of one; modules
have no machine code for what nobody does with native classes.
"""
import inspect
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from mqcore.client.native.records import StoredRecord
from mqcore.shm.ring import RingEnd

ROOT = Path(__file__).parents[1]
MODULES = ["mqcore.net.serving.held", "mqcore.net.transport.connections"]
# -- read before them: their .pxd have inline functions that use what the former only declare, and
#    include the same headers in another order
OTHERS = ["mqcore.net.serving.forward", "mqcore.store.log.producer"]
TRANSLATE = """
import multiprocessing, runpy, sys
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
folder, read, translated, *modules = sys.argv[1:]
build["Translator"].__init__.__globals__["CYTHON_DIR"] = folder
extensions = [one for one in build["extensions"]() if one.name in modules]
translator = build["Translator"](extensions)
if read == "together":
    translator.read_declarations()
for one in extensions:
    if one.name in translated.split():
        process = multiprocessing.get_context("fork").Process(
            target=translator.translate, args=(one,))
        process.start()
        process.join()
        assert process.exitcode == 0
"""


FORGET = """
import runpy, sys
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
known = build["forget_other_ways"].__globals__
known["CYTHON_DIR"], known["FLAGS"] = sys.argv[1], sys.argv[2:]
build["forget_other_ways"]()
"""


def test_what_was_made_with_other_flags_is_made_anew(tmp_path: Path) -> None:
    made = tmp_path / "cython" / "mqcore" / "one.c"

    def build(*flags: str) -> bool:
        subprocess.run([sys.executable, "-c", FORGET, str(tmp_path / "cython"), *flags], cwd=ROOT,
                       check=True, capture_output=True, timeout=300)
        kept = made.exists()
        made.parent.mkdir(exist_ok=True)
        made.touch()
        return kept

    assert [build("-O2"), build("-O2"), build("-O1"), build("-O1")] == [False, True, False, True]


@pytest.mark.slow
def test_a_module_is_translated_as_if_no_other_had_been_read_before_it(tmp_path: Path) -> None:
    for read in ("alone", "together"):
        subprocess.run(
            [sys.executable, "-c", TRANSLATE, tmp_path / read, read, " ".join(MODULES),
             *MODULES, *OTHERS], cwd=ROOT, check=True, capture_output=True, timeout=300)

    for name in MODULES:
        file = Path(name.replace(".", "/") + ".c")
        alone, together = ((tmp_path / read / file).read_bytes() for read in ("alone", "together"))
        assert together == alone, name


def test_native_classes_have_no_code_for_what_nobody_does_with_them() -> None:
    assert not hasattr(RingEnd, "__reduce_cython__")
    assert inspect.ismethoddescriptor(RingEnd.send)
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(RingEnd(bytearray(4096), 64))


def test_functions_of_native_classes_that_users_see_have_a_signature() -> None:
    assert str(inspect.signature(StoredRecord.read_properties)) == "(self)"


def test_an_error_in_native_code_names_file_line_and_function() -> None:
    with pytest.raises(ValueError, match="power of two") as raised:
        RingEnd(bytearray(4096), 63)

    place = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (place.filename, place.name) == (
        "mqcore/shm/ring.pyx", "mqcore.shm.ring.RingEnd.__init__")
    line = (ROOT / place.filename).read_text(encoding="utf-8").splitlines()[(place.lineno or 0) - 1]
    assert "power of two" in line
