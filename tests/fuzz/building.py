"""Builds what is fuzzed into build/fuzz, beside the ordinary build: by clang, with sanitizers."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from platform import machine

ROOT = Path(__file__).resolve().parents[2]
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
}
# Where lines of these files are coverage, too: modules of targets whose readers are Python's.
PYTHON_LINES = {"documents": "/mqcore/"}
# Those of mqcore whose coverage leads, with sanitizers; all others are of the ordinary build.
WATCHED = (
    "mqcore.wire.header", "mqcore.wire.bare_keys", "mqcore.wire.check_header", "mqcore.wire.digits",
    "mqcore.wire.json_cut",
    *(f"mqcore.net.{room}.{module}" for room, modules in {
        "remoting": "access frames headers reply say",
        "serving": "answers appends asked commits dispatch forward held held_lists limits loop"
                   " parked properties pull scan send transaction wanted",
        "transport": "connections handshakes memory output shake_thread slots tls tls_pipe wire_end"
                     " work",
    }.items() for module in modules.split()),
    "mqcore.filter.sql92", "mqcore.filter.sql92_number", "mqcore.filter.sql92_program",
    "mqcore.store.record", "mqcore.store.log.checksums", "mqcore.store.schedule.record",
    "mqcore.store.schedule.delivery_time", "mqcore.store.transactions.half_message",
    "mqcore.client.native.answers", "mqcore.client.native.columns",
    "mqcore.client.native.records", "mqcore.spark.store.audit_rows", "mqcore.store.index.query",
    "mqcore.store.queue.consume_queue", "mqcore.store.queue.extension",
    "mqcore.store.queue.open_files",
    "mqcore.store.verify.fields", "mqcore.store.verify.index", "mqcore.store.verify.walk",
    "mqcore.store.verify.window", "mqcore.store.log.raw", "mqcore.shm.access",
    *(f"mqcore.replication.{module}"
      for module in ("greet", "in_sync", "master", "master_loop", "slave")),
)


def missing() -> str:
    """What is not installed that a build needs; empty: nothing."""
    if shutil.which("clang") is None:
        return "clang"
    resources = subprocess.run(["clang", f"-print-file-name=libclang_rt.fuzzer-{machine()}.a"],
                               capture_output=True, text=True, check=True).stdout.strip()
    if not Path(resources).is_absolute():
        return "clang's runtime (libclang-rt-dev)"
    library = f"libpython{sysconfig.get_config_var('LDVERSION')}.so"
    has_one = (Path(sysconfig.get_config_var("LIBDIR")) / library).exists()
    return "" if has_one else f"{library}, to run an interpreter in another program"


def build() -> None:
    """Compile what changed."""
    BUILT.mkdir(parents=True, exist_ok=True)
    modules = sorted({f"tests.fuzz.targets.{module}" for module in TARGETS.values()})
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", BUILT, "--build-temp",
         BUILT / "objects"], cwd=ROOT, check=True,
        env={**os.environ, "CC": "clang", "MQCORE_FUZZ": "1",
             "MQCORE_BUILD_ONLY": " ".join([*WATCHED, *modules])})
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
