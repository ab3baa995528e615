"""The types of the public names, as a user's type checker sees them."""
from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import mqcore.client
import mqcore.client.patterns
import mqcore.testing
from tests.support.ci import unavailable

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
LIMIT_S = 300                       # of a machine that does much else
CACHE = ROOT / "build" / "mypy"     # what it knows of a file counts as long as that stays the same
STRICT = {"typeCheckingMode": "strict", "enableTypeIgnoreComments": False,
          "reportUnnecessaryTypeIgnoreComment": "error"}


def pyright(
    *arguments: str | Path, folders: tuple[str | Path, ...] = (ROOT,),
) -> subprocess.CompletedProcess[str]:
    """basedpyright: pyright's own checks, and Node in a wheel; folders: with packages."""
    command = shutil.which("basedpyright", path=str(Path(sys.executable).parent))
    if command is None:
        unavailable("basedpyright is not installed, which `make tools` does")
    return subprocess.run(
        [command, "--pythonpath", sys.executable, *arguments], capture_output=True, text=True,
        cwd=PROGRAM.parent, timeout=LIMIT_S, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))})


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_every_type_of_the_public_interface_is_known() -> None:
    # --verifytypes does not look for other packages where --pythonpath has them
    done = pyright("--verifytypes", "mqcore.client", "--ignoreexternal", "--outputjson",
                   folders=(ROOT, sysconfig.get_path("platlib")))
    found = json.loads(done.stdout)["typeCompleteness"]
    vague = [f"{symbol['name']}: {said['message']}" for symbol in found["symbols"]
             for said in symbol["diagnostics"] if not symbol["isTypeKnown"]]

    assert found["exportedSymbolCounts"]["withKnownType"] > 10
    assert (found["completenessScore"], vague) == (1, [])


@pytest.mark.slow
def test_the_user_s_program_has_every_public_name() -> None:
    tree = ast.parse(PROGRAM.read_text())
    imported = {(node.module, name.name) for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) for name in node.names}
    for module in (mqcore.client, mqcore.client.patterns, mqcore.testing):
        assert {(module.__name__, name) for name in module.__all__} - imported == set()


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_mypy_finds_nothing_but_the_program_s_own_mistakes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict",
         "--cache-dir", CACHE / "program", PROGRAM],
        capture_output=True, text=True, cwd=PROGRAM.parent, timeout=LIMIT_S, check=False,
        env={**os.environ, "MYPYPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_pyright_finds_nothing_but_the_program_s_own_mistakes(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(STRICT))
    done = pyright("--project", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
