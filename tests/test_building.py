"""
setup.py: its way of translating many modules leaves each C file as Cython makes it of one; modules
have no machine code for what nobody does with native classes.
"""
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from mqcore.client.native.records import StoredRecord
from mqcore.shm.ring import RingEnd
from tests.fuzz.building import TARGETS
from tests.imports import compiled_as, module_of, sources

ROOT = Path(__file__).parents[1]
MODULE = "mqcore.store.reader"
# -- read before it: their .pxd have inline functions that use what the former only declare, and
#    include the same headers in another order
OTHERS = ["mqcore.net.transport._native", "mqcore.store.log._native"]
TRANSLATE = """
import gc, multiprocessing, runpy, sys
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
gc.set_threshold(build["YOUNG_OBJECTS_MAX"])
folder, read, translated, *others = sys.argv[1:]
build["Translator"].__init__.__globals__["CYTHON_DIR"] = folder
extensions = [one for one in build["extensions"]() if one.name in (translated, *others)]
translator = build["Translator"](extensions)
if read == "together":
    translator.read_declarations()
for one in extensions:
    if one.name == translated:
        process = multiprocessing.get_context("fork").Process(
            target=translator.translate, args=(one,))
        process.start()
        process.join()
        assert process.exitcode == 0
"""


FORGET = """
import json, runpy, sys
from pathlib import Path
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
known = build["forget_other_ways"].__globals__
folder, *ways = sys.argv[1:]
made = Path(folder, "mqcore", "one.c")
kept = []
for flag in ways:
    known["CYTHON_DIR"], known["FLAGS"] = folder, [flag]
    build["forget_other_ways"]()
    kept.append(made.exists())
    made.parent.mkdir(exist_ok=True)
    made.touch()
print(json.dumps(kept))
"""
MARK = """
import runpy, sys
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
sys.stdout.write(build["with_plain"](sys.stdin.read(), build[sys.argv[1]]))
"""

MADE = """
import runpy, sys
from pathlib import Path
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
build["Units"].__init__.__globals__["ROOT"] = Path(sys.argv[1])
units = build["Units"]()
units.write()
print(*sorted(units.sources()))
"""
ASKED = """
import runpy, sys
import setuptools
setuptools.setup = lambda **_: None
print(runpy.run_path("setup.py")["UNITS"].asked(*sys.argv[1:]))
"""
LACKING = """
import runpy, sys
from types import SimpleNamespace
import setuptools
setuptools.setup = lambda **_: None
command = runpy.run_path("setup.py")["Build"](setuptools.Distribution())
command.build_temp = sys.argv[1]
command.compiler = SimpleNamespace(compiler_so=sys.argv[2:], include_dirs=[])
command.precompiled()
"""

WAY = """
import json, runpy
import setuptools
setuptools.setup = lambda **_: None
build = runpy.run_path("setup.py")
modules = [one.name for one in build["extensions"]()]
print(json.dumps([build["CYTHON_DIR"], build["FLAGS"], modules]))
"""


def test_what_was_made_with_other_flags_is_made_anew(tmp_path: Path) -> None:
    """What a build has made is there at the next one with the same flags, and at no other."""
    said = subprocess.run(
        [sys.executable, "-c", FORGET, str(tmp_path / "cython"), "-O2", "-O2", "-O1", "-O1"],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout

    assert json.loads(said) == [False, True, False, True]


def test_sanitizers_by_clang_are_another_build_with_what_fuzzers_need_besides() -> None:
    made = {}
    for compiler in ("gcc", "clang"):
        said = subprocess.run(
            [sys.executable, "-c", WAY], cwd=ROOT, check=True, capture_output=True, text=True,
            timeout=300, env={**os.environ, "CC": compiler, "MQCORE_DEBUG": "1"}).stdout
        made[compiler] = json.loads(said)
    (folder, flags, modules), (other_folder, more_flags, more_modules) = made.values()

    assert folder == other_folder
    assert more_flags != flags                           # so what the other has made is made anew
    assert "-fsanitize=address,undefined,float-cast-overflow" in flags
    assert "-fsanitize=address,undefined,float-cast-overflow,fuzzer-no-link" in more_flags
    targets = {f"fuzz_targets.{module}" for module in TARGETS.values()}
    assert {*more_modules} - {*modules} == targets
    assert {*modules} <= {*more_modules}


@pytest.mark.parametrize(("which", "expected"), [
    ("FOR_PYTHON",
     ["__pyx_pf_door", "__pyx_pf_native_call", "__pyx_pw_door", "__Pyx_AddTraceback"]),
    ("NO_COVERAGE", ["__pyx_pw_door", "__Pyx_AddTraceback"]),
    ("ONCE", ["__Pyx_AddTraceback"]),
])
def test_functions_for_python_are_plain_but_for_those_that_do_native_work(
        which: str, expected: list[str]) -> None:
    written = """\
/* Generated by Cython 3.3.1 */
static CYTHON_INLINE long __Pyx_inline(long x); /*proto*/
static PyObject *__pyx_pw_door(PyObject *self, PyObject *arguments); /*proto*/
static PyObject *__pyx_pf_native_loop(PyObject *x); /*proto*/
static PyObject *(*__pyx_f_imported)(PyObject *);
static PyObject *__pyx_f_native(PyObject *x) {
  return x;
}
static PyObject *__pyx_pf_door(PyObject *x) {
  for (int i = 0; i < 3; i++) __pyx_f_native(x);
  return x;
}
static PyObject *__pyx_pf_native_loop(PyObject *x) {
  PyThreadState *_save = PyEval_SaveThread();
  while (1) __pyx_f_native(x);
}
static PyObject *__pyx_pf_native_call(PyObject *x) {
  PyThreadState *_save = PyEval_SaveThread();
  return __pyx_f_native(x);
}
static PyObject *__pyx_pw_door(PyObject *self,
#if CYTHON_METH_FASTCALL
PyObject *const *arguments, Py_ssize_t count
#else
PyObject *arguments
#endif
) {
  return __pyx_pf_door(self);
}
static void __Pyx_AddTraceback(const char *name) {
}
"""
    marked = subprocess.run(
        [sys.executable, "-c", MARK, which], cwd=ROOT, input=written, check=True,
        capture_output=True, text=True, timeout=300).stdout

    plain = re.findall(r"^static MQ_PLAIN [\w *]*?(\w+)\(", marked, re.MULTILINE)
    first, _, rest = written.partition("\n")
    assert marked.startswith(first + "\n")
    assert marked.replace("MQ_PLAIN ", "").endswith(rest)
    assert plain == expected


@pytest.mark.slow
def test_a_module_is_translated_as_if_no_other_had_been_read_before_it(tmp_path: Path) -> None:
    for read in ("alone", "together"):
        subprocess.run(
            [sys.executable, "-c", TRANSLATE, tmp_path / read, read, MODULE, *OTHERS], cwd=ROOT,
            check=True, capture_output=True, timeout=300)

    file = Path(MODULE.replace(".", "/") + ".c")
    alone, together = ((tmp_path / read / file).read_bytes() for read in ("alone", "together"))
    assert together == alone


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
        "mqcore/shm/ring.pyx", "mqcore.shm._native.RingEnd.__init__")
    line = (ROOT / place.filename).read_text(encoding="utf-8").splitlines()[(place.lineno or 0) - 1]
    assert "power of two" in line


def test_the_native_modules_of_a_room_are_one_module(tmp_path: Path) -> None:
    """
    `base` is needed by what `first` needs of another room: it cannot wait for the others. `kinds`
    needs one of them and is needed by another. What has a room for itself is compiled by itself.
    """
    room, other = tmp_path / "mqcore/room", tmp_path / "mqcore/other"
    room.mkdir(parents=True)
    for name, text in {
        "base.pxd": "", "base.pyx": "",
        "door.pyx": "# cython: binding=True\ndef door():\n    pass\n",
        "first.pxd": "", "first.pyx": ("from mqcore.other.one cimport one\n"
                                       "from mqcore.room.kinds cimport Kind\n"),
        "kinds.pxd": "from mqcore.room.second cimport second\n",
        "second.pxd": "cdef int second() noexcept nogil\n",
        "second.pyx": "from mqcore.room.third import third\n", "third.pyx": "", "types.pxd": "",
    }.items():
        (room / name).write_text(text)
    other.mkdir()
    (other / "_native.pyx").touch()
    (other / "one.pxd").write_text("from mqcore.room.base cimport base\n")
    (other / "one.pyx").touch()

    made = subprocess.run([sys.executable, "-c", MADE, str(tmp_path)], cwd=ROOT, check=True,
                          capture_output=True, text=True, timeout=300).stdout.split()

    assert made == ["mqcore.other.one", "mqcore.room._native", "mqcore.room.base"]
    head, named, included = (room / "_native.pyx").read_text().split("\n", 2)
    assert head == "# cython: binding=True"
    assert named == 'MEMBERS = ("door", "third", "second", "first", )'
    assert included == "".join(
        f'include "{name}.pyx"\n' for name in ("door", "third", "second", "first"))
    assert (room / "_native.pxd").read_text() == "".join(
        f'include "{name}.pxd"\n' for name in ("second", "kinds", "first"))
    assert not (other / "_native.pyx").exists()


@pytest.mark.parametrize(("by", "name", "expected"), [
    ("/elsewhere/Cython/Includes/libc/stdlib.pxd", "libc.string", "libc.string"),
    ("mqcore/layout.pyx", "mqcore.shm.ring", "mqcore.shm._native"),
    ("mqcore/shm/segment.pyx", "mqcore.shm.ring", "None"),
])
def test_who_asks_for_a_module_of_a_room_is_given_what_it_is_compiled_with(
        by: str, name: str, expected: str) -> None:
    """Cython's own files may lie anywhere: pip builds a wheel with one that it installs for it."""
    given = subprocess.run([sys.executable, "-c", ASKED, name, by], cwd=ROOT, check=True,
                           capture_output=True, text=True, timeout=300).stdout
    assert given == f"{expected}\n"


def test_what_is_in_place_is_what_a_build_makes() -> None:
    made = subprocess.run([sys.executable, "-c", MADE, str(ROOT)], cwd=ROOT, check=True,
                          capture_output=True, text=True, timeout=300).stdout.split()
    there = {module_of(path.with_name(path.name.partition(".")[0]))
             for path in sources(".so", folders=("mqcore",))}

    assert there == {*made, "mqcore._cyutility"}
    assert len(made) < len(sources(".pyx", folders=("mqcore",)))


@pytest.mark.parametrize("module", sorted(map(module_of, {
    compiled_as(path): path for path in sources(".pyx", folders=("mqcore",))}.values())))
def test_a_native_module_can_be_the_first_that_is_imported(module: str) -> None:
    code = f"import sys, {module}; sys.modules['{module}'].__file__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])     # false: no header is there
def test_who_cannot_compile_is_told_what_to_install(tmp_path: Path, compiler: str) -> None:
    done = subprocess.run([sys.executable, "-c", LACKING, str(tmp_path), compiler], cwd=ROOT,
                          check=False, capture_output=True, text=True, timeout=300)

    assert done.returncode == 1
    assert f"command '{compiler}' failed" in done.stderr
    assert "apt install gcc libc6-dev python3-dev" in done.stderr
