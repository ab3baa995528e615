"""
Runs native tests over the debug build: `make debug`, or `python -m tests.debug [PYTEST ARGUMENTS]`.

The debug build (MQCORE_DEBUG of setup.py) lies in build/debug, beside the fast one, and has
AddressSanitizer, UndefinedBehaviorSanitizer, Cython's checks of bounds, and the invariants of
mqcore/invariants.pxd. Every process of the tests, a broker's too, writes a report when one of them
finds something, and ends. A report fails the run, whatever the tests say; what fails without one is
run once more, alone, as in `make test`. Leaks are not looked for: the interpreter has many of its
own.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.debug.building import BUILT, ROOT, build, library, sanitizers

REPORTS = BUILT / "reports"
TESTS = (
    "tests/debug/check_reports.py", "tests/shm", "tests/store", "tests/filter", "tests/wire",
    "tests/net",
    *(f"tests/{subject}/test_{name}.py" for subject, names in {
        "acl": "guard files hmac",
        "client": "columns native received reading",
        "hostile": "limits",
        "pop": "deliveries handles histories journal",
        "pull": "reading",
        "query": "index requests",
        "queues": "delivery_times filter_bits light_offsets light_queues queue_extension",
        "recovery": "queue_ends verify_agrees",
        "replication": "slave master greeting",
        "retention": "log_cleaner removal trim",
        "schedule": "lives turns",
        "tls": "shake_thread",
        "transactions": "rounds turns",
        "verify": "rules stock_stores",
    }.items() for name in names.split()),
    # sweeps: minutes each
    "--ignore=tests/store/test_power_cut.py", "--ignore=tests/store/test_power_cut_late.py",
    "--ignore=tests/store/test_writer_killed.py", "--ignore=tests/store/test_flush_ahead.py",
    # AddressSanitizer's mlock does nothing, and says that all is well
    "--deselect=tests/store/test_flush_pool.py::test_the_memory_limit_is_only_a_warning",
    # brokers, for what is Python, or one call of the system
    "--deselect=tests/store/test_same_bytes.py::"
    "test_the_settings_files_have_the_stock_brokers_fields",
    "--deselect=tests/tls/test_shake_thread.py::test_the_thread_stands_back_behind_the_loop",
    # a measure of time, of texts that others read in parts as well
    "--deselect=tests/wire/test_command.py::test_no_header_takes_long_between_two_pauses",
)
FEWER = int(os.environ.get("MQCORE_TEST_FEWER", 5))     # one in so many random cases
FAILED = 1                           # pytest's status when tests failed
OPTIONS = ("-q", "-m", "not slow", "-o", f"cache_dir={BUILT / 'pytest_cache'}",
           # what a native function cannot raise, an index out of bounds, say
           "-W", "error::pytest.PytestUnraisableExceptionWarning")


def environment(reports: Path) -> dict[str, str]:
    """For a process that loads the debug build; what is found is written below `reports`."""
    compiler, first = sanitizers()
    common = f"log_path={reports / 'report'}:halt_on_error=1:abort_on_error=1:allow_addr2line=1"
    return {
        **os.environ,
        "LD_PRELOAD": f"{first} {library(compiler, 'libstdc++.so')}",
        "ASAN_OPTIONS": f"{common}:detect_leaks=0:handle_abort=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": f"{common}:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",              # the interpreter's objects are looked after, too
        "PYTHONPATH": str(BUILT),
        "MQCORE_TEST_FEWER": str(FEWER),       # tests/support/dice.py
        # what hypothesis knows of Unicode: to find it again takes 10 s here
        "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
    }


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *OPTIONS, *arguments], cwd=BUILT,
                          env=environment(REPORTS), check=False).returncode


def main(arguments: list[str]) -> int:
    shutil.rmtree(REPORTS, ignore_errors=True)
    build()
    REPORTS.mkdir(parents=True)
    named = any(not one.startswith("-") for one in arguments)
    asked = (*arguments, *(() if named else TESTS))
    code = pytest("-n", "2", *asked)
    if code == FAILED and not any(REPORTS.iterdir()):
        print("debug: what failed is run once more, alone")
        code = pytest("-v", "--last-failed", "--last-failed-no-failures", "none", *asked)
    found = sorted(REPORTS.iterdir())
    for report in found:
        print(f"\n== {report}\n{report.read_text(errors='replace')}")
    print(f"debug: pytest ended with {code}, {len(found)} reports")
    return code or int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
