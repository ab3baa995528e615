"""setup.py: its way of translating many modules leaves each C file as Cython makes it of one."""
import subprocess
import sys
from pathlib import Path

import pytest

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
