"""Builds the Cython core: one extension for each .pyx file below mqcore/."""
import importlib
import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent
SHARED = "mqcore._cyutility"            # what Cython's modules have in common, compiled once
FLAGS = ["-O2", "-g0", "-std=gnu11", "-fno-strict-aliasing", "-Wno-unused-function",
         "-Wno-format-truncation", "-Wno-maybe-uninitialized"]
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
    only = os.environ.get("MQCORE_BUILD_ONLY", "").split()     # dotted names, for a quick rebuild
    result = [] if only and SHARED not in only else [
        Extension(SHARED, ["mqcore/_cyutility.c"], extra_compile_args=FLAGS)]
    for source in sorted((ROOT / "mqcore").rglob("*.pyx")):
        path = source.relative_to(ROOT)
        name = ".".join(path.with_suffix("").parts)
        if only and name not in only:
            continue
        result.append(
            Extension(
                name,
                [str(path)],
                include_dirs=["mqcore/include"],
                depends=[str(header) for header in Path("mqcore/include").glob("*.h")],
                extra_compile_args=FLAGS,
                extra_link_args=["-pthread"],
            )
        )
    return result


declare_tables()
JOBS = int(os.environ.get("MQCORE_BUILD_JOBS", str(os.cpu_count() or 2)))

setup(
    packages=sorted(packages()),
    options={"build_ext": {"parallel": JOBS}},
    package_dir=packages(),
    package_data={
        "mqcore": ["*.pxd", "**/*.pxd", "*.pyi", "**/*.pyi", "py.typed", "include/*.h"],
        "mqcore.config": ["*.toml"],
    },
    ext_modules=cythonize(
        extensions(),
        build_dir="build/cython",
        shared_utility_qualified_name=SHARED,
        nthreads=JOBS,
        cache=os.environ.get("MQCORE_CYTHON_CACHE") or False,   # a folder that checkouts may share
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
        },
    ),
)
