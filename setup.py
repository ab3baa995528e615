"""
Builds the Cython core: one extension for each .pyx file below mqcore/.

MQCORE_DEBUG=1           bounds, invariants and gcc's sanitizers on (`make debug`)
MQCORE_FUZZ=1            the same by clang, with coverage and tests/fuzz/targets (`make fuzz`)
MQCORE_THREADS=1         ThreadSanitizer (tests/debug/threads.py)
MQCORE_BUILD_JOBS        how many at a time; the processors at hand
MQCORE_BUILD_ONLY        dotted names of the only modules to build, `none` for none
MQCORE_CYTHON_CACHE      a folder of Cython's results, which checkouts may share
"""
import gc
import hashlib
import importlib
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
FUZZ = bool(os.environ.get("MQCORE_FUZZ"))
THREADS = bool(os.environ.get("MQCORE_THREADS"))
DEBUG = FUZZ or bool(os.environ.get("MQCORE_DEBUG"))
JOBS = int(os.environ.get("MQCORE_BUILD_JOBS", len(os.sched_getaffinity(0))))
CYTHON_DIR = "build/{}cython".format(
    "fuzz/" if FUZZ else "threads/" if THREADS else "debug/" if DEBUG else "")
SHARED = "mqcore._cyutility"            # what Cython's modules have in common, compiled once
YOUNG_OBJECTS_MAX = 200_000             # Python objects made between two looks for garbage
SANITIZERS = "-fsanitize=address,undefined,float-cast-overflow"
if FUZZ:
    SANITIZERS += ",fuzzer-no-link"
FLAGS = ["-std=gnu11", "-fno-strict-aliasing", "-fwrapv", "-Wno-unused-function",
         "-Wno-format-truncation", "-Wno-maybe-uninitialized"]
FLAGS += ["-O1", "-g1", "-fno-omit-frame-pointer", "-UNDEBUG", "-DMQ_DEBUG", SANITIZERS,
          ] if DEBUG else ["-O2", "-g0"]
if FUZZ:
    FLAGS += ["-fno-sanitize-recover=all", "-Wno-unknown-warning-option"]
if THREADS:
    SANITIZERS = "-fsanitize=thread"
    FLAGS += ["-O1", "-g1", "-Wno-tsan", SANITIZERS]
LINK_FLAGS = ["-pthread", *([SANITIZERS] if DEBUG or THREADS else [])]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": DEBUG,
    "embedsignature": True,
    "emit_code_comments": DEBUG,
}
# -- what each module reads before its own lines, compiled once: a sixth of gcc's time. Another one
#    went into the code of each module's import, which runs once: Cython marks it by a macro
COMMON = """\
#if !defined(__clang__) && !defined(MQ_DEBUG)
#define CYTHON_SMALL_CODE __attribute__((cold, optimize("O1")))
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
"""
TABLES = ("participants", "figures")    # rows in Python, whose numbers native code has as constants
PACKAGES = {
    "mqcore": "mqcore",
    "mqcore.workers": "workers",        # one file = one process; a top-level folder of its own
    "mqcore.config": "config",          # the shipped settings are package data
}


def declare_tables() -> None:
    """Write the .pxd of each table; one that says what it said keeps its time."""
    sys.path.insert(0, str(ROOT))
    for table in TABLES:
        text = importlib.import_module(f"mqcore.{table}").declarations()
        target = ROOT / "mqcore" / f"{table}.pxd"
        if not target.exists() or target.read_text(encoding="ascii") != text:
            target.write_text(text, encoding="ascii")
    del sys.path[0]


def packages() -> dict[str, str]:
    found = dict(PACKAGES)
    for init in (ROOT / "mqcore").rglob("__init__.py"):
        folder = init.parent.relative_to(ROOT)
        found[".".join(folder.parts)] = str(folder)
    return found


def extensions() -> list[Extension]:
    only = os.environ.get("MQCORE_BUILD_ONLY", "").split()
    sources = {SHARED: "mqcore/_cyutility.c"}
    for source in sorted((ROOT / "mqcore").rglob("*.pyx")):
        path = source.relative_to(ROOT)
        sources[".".join(path.with_suffix("").parts)] = str(path)
    for target in sorted((ROOT / "tests/fuzz/targets").glob("*.pyx")) if FUZZ else ():
        sources[f"tests.fuzz.targets.{target.stem}"] = str(target.relative_to(ROOT))
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "mqcore/include").glob("*.h"))
    return [
        Extension(name, [source], include_dirs=["mqcore/include"],
                  depends=[] if name == SHARED else headers,
                  extra_compile_args=FLAGS, extra_link_args=LINK_FLAGS)
        for name, source in sources.items() if not only or name in only
    ]


def remove_strays() -> None:
    """Modules in place whose sources are gone: they would still be found."""
    for module in (ROOT / "mqcore").rglob("*.so"):
        source = module.with_name(module.name.split(".")[0] + ".pyx")
        if not source.exists() and source.stem != SHARED.rpartition(".")[2]:
            module.unlink()


class Build(build_ext):
    """Asks Cython when something is compiled, not for each look at the package's metadata."""

    def run(self) -> None:
        from Cython.Build import cythonize

        declare_tables()
        if self.inplace:
            remove_strays()
        # -- a syntax tree lives as long as its module is translated: a third of Cython's time went
        #    into looking for garbage in it. Processes that translate beside this one inherit it
        gc.set_threshold(YOUNG_OBJECTS_MAX)
        translated = cythonize(
            self.extensions,
            build_dir=CYTHON_DIR,
            shared_utility_qualified_name=SHARED,
            nthreads=JOBS,
            cache=os.environ.get("MQCORE_CYTHON_CACHE") or False,
            emit_linenums=DEBUG,
            compiler_directives=DIRECTIVES,
        )
        sources = {one.name: one.sources for one in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
        super().run()

    def build_extensions(self) -> None:
        """The longest first: at the end no processor waits for one of them."""
        if self.compiler.compiler_type == "unix" and not os.environ.get("MQCORE_BUILD_ONLY"):
            header = self.precompiled()
            for extension in self.extensions:
                extension.extra_compile_args = [*FLAGS, "-include", header]
        self.extensions.sort(key=lambda one: os.path.getsize(one.sources[0]), reverse=True)
        super().build_extensions()

    def precompiled(self) -> str:
        """
        The path of a header with COMMON, and beside it what gcc has made of it, which it reads in
        its place if it fits.
        """
        command = [*self.compiler.compiler_so, *FLAGS,
                   *(f"-I{folder}" for folder in self.compiler.include_dirs)]
        known = hashlib.sha256("\0".join([*command, COMMON]).encode()).hexdigest()[:16]
        header = Path(self.build_temp, f"common-{known}.h")
        if not Path(f"{header}.gch").exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(COMMON, encoding="ascii")
            self.spawn([*command, "-x", "c-header", str(header), "-o", f"{header}.gch"])
        return str(header)


setup(
    cmdclass={"build_ext": Build},
    packages=sorted(packages()),
    py_modules=sorted(path.stem for path in ROOT.glob("pyspark_*.py")),     # Spark looks for them
    options={"build_ext": {"parallel": JOBS}},
    package_dir=packages(),
    package_data={
        "mqcore": ["*.pyi", "**/*.pyi", "py.typed"],
        "mqcore.config": ["*.toml"],
    },
    ext_modules=extensions(),
)
