"""In CI nothing that a machine lacks makes a test, a fuzzer or a sanitizer pass silently."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from tests.debug import building, threads
from tests.fuzz import __main__ as fuzz
from tests.fuzz import building as fuzz_building
from tests.interop.mqadmin import Mqadmin
from tests.interop.toolchain import command_of
from tests.rare import KEPT, RARE, is_rare
from tests.replication.faults.namespaces import hosts
from tests.support.ci import unavailable
from tests.support.mounted import mounted
from tests.support.stock import require_stock
from tests.tls.certificates import Authority

ROOT = Path(__file__).parents[1]
Outcome = type[BaseException]


@pytest.fixture(params=[("true", 1, pytest.fail.Exception), ("1", 1, pytest.fail.Exception),
                        ("", 0, pytest.skip.Exception)], ids=["ci", "ci-1", "elsewhere"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
          tmp_path: Path) -> tuple[int, Outcome]:
    """
    A machine without any program but a `mount` that refuses, in CI or not: what a command ends with
    there, and a test.
    """
    ci, status, outcome = request.param
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    refusing = tmp_path / "mount"
    refusing.write_text("#!/bin/sh\nexit 32\n")
    refusing.chmod(0o755)
    return status, outcome


def enter_hosts(_: Path) -> None:
    with hosts("a", "b"):
        pytest.fail("there is no ip here")


def mount(folder: Path) -> None:
    with mounted(folder / "mounted", "size=1m"):
        pytest.fail("nothing can be mounted here")


def administer(folder: Path) -> None:
    """For one test after another, with the same folder; other tests hear nothing of it."""
    command_of.cache_clear()
    try:
        with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)):
            Mqadmin(folder, "127.0.0.1:9")
        Mqadmin(folder, "127.0.0.1:9")
    finally:
        command_of.cache_clear()


@pytest.mark.parametrize("need", [
    lambda _: unavailable("why"), lambda _: require_stock(), enter_hosts, mount, Authority,
    administer,
], ids=["anything", "stock", "hosts", "mount", "authority", "mqadmin"])
def test_a_test_that_needs_more_fails_in_ci(
        need: Callable[[Path], None], place: tuple[int, Outcome], tmp_path: Path) -> None:
    with pytest.raises(place[1]) as ended:
        need(tmp_path)
    assert type(ended.value) is place[1]


def test_fuzzers_without_a_compiler_fail_in_ci(
        place: tuple[int, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main([]) == place[0]
    assert "clang is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(("has", "compiler", "lacking"), [
    ((), "gcc", "clang"),
    (("clang",), "gcc", "clang's runtime (libclang-rt-dev)"),
    (("clang", "libclang_rt.asan-cpu.so"), "clang", "clang's runtime (libclang-rt-dev)"),
    (("clang", "libclang_rt.asan-cpu.so", "libclang_rt.fuzzer-cpu.a"), "clang", ""),
    (("clang", "libclang_rt.asan.so", "libclang_rt.fuzzer.a"), "clang", ""),
], ids=["no-clang", "no-runtime", "no-fuzzer", "all", "all-in-folders-of-machines"])
def test_sanitizers_are_those_of_clang_where_it_has_them(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: tuple[str, ...], compiler: str,
        lacking: str) -> None:
    """The machine's compilers say where they have a library, or its name alone."""
    for name in ("gcc", *has):
        (tmp_path / name).write_text(
            f'#!/bin/sh\nname="${{1#-print-file-name=}}"\n[ -e "{tmp_path}/$name" ] && '
            f'name="{tmp_path}/$name"\necho "$name"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(building, "machine", lambda: "cpu")

    found, first = building.sanitizers.__wrapped__()

    assert found == compiler
    assert first == (str(tmp_path / has[1]) if compiler == "clang" else "libasan.so")
    said = fuzz_building.missing()
    assert (said if "clang" in said else "") == lacking


def test_threads_that_cannot_be_watched_fail_in_ci(
        place: tuple[int, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "build", lambda: None)
    monkeypatch.setattr(threads, "run", lambda part: subprocess.CompletedProcess(
        part, 1, "", "FATAL: ThreadSanitizer: unexpected memory mapping 0x1-0x2"))
    assert threads.main() == place[0]


@pytest.mark.parametrize(("ci", "chosen"), [
    ("true", ["not spark", "spark"]),
    ("", ["not spark and not slow and not rare", "spark and not slow and not rare"]),
], ids=["ci", "elsewhere"])
def test_ci_selects_all_tests_and_a_plain_run_leaves_out_slow_and_rare_ones(
        ci: str, chosen: list[str]) -> None:
    """`.ci/run` exports CI=true and runs `make test`."""
    run = subprocess.run(
        ["make", "--dry-run", "--silent", "test"], cwd=ROOT, capture_output=True, text=True,
        check=True, env={"PATH": os.environ["PATH"], "CI": ci})
    first_tries = [line for line in run.stdout.splitlines() if "worksteal" in line]
    assert [line.partition('-m "')[2].partition('"')[0] for line in first_tries] == chosen
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "export CI=true" in text
    assert re.search(r"^stage test \S+ make test( PYTEST_ARGS=--durations=\d+)? ", text, re.M)


def test_files_that_are_left_to_ci_exist() -> None:
    tests = ROOT / "tests"
    assert [name for name in (*RARE, *KEPT) if not (tests / name).exists()] == []
    assert is_rare(PurePath("interop/test_tls.py"))
    assert is_rare(PurePath("client/test_guide.py"))
    assert not is_rare(PurePath("interop/test_send_and_consume.py"))
    assert not is_rare(PurePath("client/test_guides.py"))
    assert is_rare(PurePath("patterns/test_outbox.py"), "late-postgresql")
    assert not is_rare(PurePath("patterns/test_outbox.py"), "late-sqlite")
    assert is_rare(PurePath("client/admin/test_acl.py"), "stock")
    assert not is_rare(PurePath("client/admin/test_acl.py"), "mqcore")


def test_all_that_tests_ask_for_is_installed_by_ci() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for program in ("clang", "etcd", "ip", "java", "mvn", "openssl", "valgrind"):
        assert f"have {program} " in text


def test_no_file_of_tests_needs_what_only_ci_installs() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.plain_install", "--collect-only",
         "-q", "tests/spark"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "No module named 'pyspark'" in run.stdout       # some are skipped, and say why
