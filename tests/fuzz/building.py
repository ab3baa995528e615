"""Builds what is fuzzed: modules of the build under sanitizers, and in build/fuzz their program."""
from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

from tests.debug import building as modules
from tests.debug.building import ROOT

BUILT = ROOT / "build" / "fuzz"
HARNESS = BUILT / "fuzz"

# name -> module of tests/fuzz/targets
TARGETS = {
    "json_header": "wire", "binary_header": "wire", "json_text": "wire", "properties": "wire",
    "tags": "wire",
    "program": "filter", "number": "filter",
    "frames": "serving", "send": "serving", "guard": "access",
    "answers": "client", "pulled": "client", "audited": "client",
    "header_codecs": "oracles", "filters": "oracles", "expression": "oracles",
    "tag_expression": "oracles", "key_lookup": "oracles",
    "log_record": "store", "queue_entry": "store", "index_file": "store", "checksums": "store",
    "extension": "queue_files",
    "master_frames": "replication", "slave_reports": "replication",
    "access_file": "documents", "epochs_file": "documents", "greeting_words": "documents",
    "checkpoint_file": "documents", "backup_manifest": "documents", "backup_stream": "documents",
    "tls_records": "tls",
    "pop_file": "pop", "receipt": "pop",
}
# Where lines of these files are coverage, too: modules of targets whose readers are Python's.
PYTHON_LINES = {"documents": "/mqcore/"}


def missing() -> str:
    """What is not installed that a build needs; empty: nothing."""
    if shutil.which("clang") is None:
        return "clang"
    if not (modules.runtime("asan", ".so") and modules.runtime("fuzzer", ".a")):
        return "clang's runtime (libclang-rt-dev)"
    library = f"libpython{sysconfig.get_config_var('LDVERSION')}.so"
    has_one = (Path(sysconfig.get_config_var("LIBDIR")) / library).exists()
    return "" if has_one else f"{library}, to run an interpreter in another program"


def build() -> None:
    """Compile what changed."""
    modules.build()
    BUILT.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("harness.c")
    if HARNESS.exists() and HARNESS.stat().st_mtime > source.stat().st_mtime:
        return
    libraries = sysconfig.get_config_var("LIBDIR")
    subprocess.run(
        ["clang", "-g1", "-O1", "-fsanitize=fuzzer,address,undefined", "-rdynamic",
         f"-I{sysconfig.get_path('include')}", source, "-o", HARNESS, f"-L{libraries}",
         f"-Wl,-rpath,{libraries}", f"-lpython{sysconfig.get_config_var('LDVERSION')}", "-ldl",
         "-lm"], check=True)


if __name__ == "__main__":
    if not missing():                  # else `python -m tests.fuzz` says what
        build()
