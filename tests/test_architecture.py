"""The rules of the code base that a machine can hold: imports, sizes, layouts, waiting."""
from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINES_MAX = 600
OWN = re.compile(r"^\s*(?:from|import|cimport)\s+(mqcore[\w.]*)(?:\s+c?import\s+(.*))?")

# Who may import whom, from the top down; a package may always import itself.
ALLOWED: dict[str, set[str]] = {
    "atomics": set(), "endian": set(), "clock": set(),
    "participants": set(), "figures": {"participants"},
    "layout": {"figures", "participants"}, "turns": set(),
    "names": {"layout"},
    "shm": {"figures", "participants", "layout", "names", "atomics", "endian", "clock"},
    "wire": {"shm", "layout", "endian", "turns"},
    "store": {"wire", "shm", "layout", "names", "atomics", "endian", "clock"},
    "net": {"store", "filter", "wire", "shm", "layout", "names", "atomics", "endian", "clock"},
    "filter": {"store", "wire", "shm", "layout", "atomics", "endian"},
    "client": {"layout", "wire"},
    "bench": {"client", "wire", "layout", "endian"},
    "namesrv": {"client", "turns", "wire"},
    "broker": {"layout", "store", "filter", "turns", "wire", "config"},
    "dashboard": {"client", "wire", "admin"},
    "spark": {"client", "store", "wire"},
    "admin": {"bench", "broker", "client", "config", "figures", "layout", "namesrv", "net",
              "participants", "shm", "store", "wire", "workers"},
    "workers": {"admin", "broker", "client", "config", "dashboard", "filter", "layout", "namesrv",
                "net", "participants", "shm", "store", "turns", "wire"},
    "testing": {"admin", "broker", "client", "config", "namesrv", "wire", "workers"},
    "config": set(),
    "replication": {"store", "shm", "wire", "layout"},
}


def sources(*suffixes: str, folders: tuple[str, ...] = ("mqcore", "workers", "config")):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in suffixes and "__pycache__" not in path.parts
            and "node_modules" not in path.parts]


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0] if parts[0] != "mqcore" else parts[1] if len(parts) > 1 else ""


def imported(path: Path):
    """(line number, package of mqcore) of every import and cimport of a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = OWN.match(line)
        if found is None:
            continue
        name, what = found.group(1), (found.group(2) or "").split(" as ")[0]
        parts = name.split(".")
        names = [parts[1]] if len(parts) > 1 else [n.strip() for n in what.strip("( )").split(",")]
        yield from ((number, each) for each in names if each and each != "__version__")


def test_imports_point_down_only():
    wrong = []
    for path in sources(".py", ".pyx", ".pxd", ".pyi"):
        package = package_of(path)
        if package in ("__init__", ""):
            continue
        assert package in ALLOWED, f"{path}: say in ALLOWED what {package} may import"
        wrong += [f"{path.relative_to(ROOT)}:{number} imports {target}"
                  for number, target in imported(path)
                  if target != package and target not in ALLOWED[package]]
    assert wrong == []


def test_nothing_imports_tests_or_perf():
    pattern = re.compile(r"^\s*(?:from|import)\s+(?:tests|perf)\b", re.M)
    assert [path for path in sources(".py", ".pyx") if pattern.search(path.read_text())] == []


def test_the_import_scan_sees_every_form():
    """The scan is a regular expression: here is what it must not miss."""
    probe = ROOT / "tests" / "golden" / "imports.txt"
    assert [target for _, target in imported(probe)] == [
        "net", "shm", "broker", "wire", "store", "layout"]


def test_the_native_core_imports_no_python_part():
    """Native modules hold no rules: they know of no broker, client or worker."""
    wrong = [f"{path.relative_to(ROOT)}:{number}" for path in sources(".pyx", ".pxd")
             for number, target in imported(path)
             if target in ("broker", "namesrv", "client", "admin", "dashboard", "workers")]
    assert wrong == []


def test_no_file_is_longer_than_600_lines():
    suffixes = (".py", ".pyx", ".pxd", ".pyi", ".h", ".md")
    longest = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
               for path in sources(*suffixes, folders=("mqcore", "workers", "config", "tests",
                                                       "perf", "docs"))}
    assert {path: lines for path, lines in longest.items() if lines > LINES_MAX} == {}


def test_no_test_waits_by_the_clock():
    """Only `wait_until`, which polls a condition up to its deadline, sleeps between two looks."""
    wrong = []
    for path in sources(".py", folders=("tests",)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {alias.asname or alias.name for node in ast.walk(tree)
                 if isinstance(node, ast.ImportFrom) and node.module == "time"
                 for alias in node.names if alias.name == "sleep"}
        polls = {id(inner) for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                 and node.name == "wait_until" for inner in ast.walk(node)}
        wrong += [f"{path.relative_to(ROOT)}:{node.lineno}" for node in ast.walk(tree)
                  if isinstance(node, ast.Call) and waits(node, names) and id(node) not in polls]
    assert wrong == []


def waits(call: ast.Call, sleeps: set[str]) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in sleeps
    return (isinstance(function, ast.Attribute) and function.attr == "sleep"
            and isinstance(function.value, ast.Name) and function.value.id == "time")


@pytest.mark.parametrize("magic", [
    "-626843481", "0xDAA320A7", "-875286124", "0xCBD43194", "0x4D51434F52450A01"])
def test_a_magic_stands_in_the_layout_only(magic):
    """The wire codec in Python has the record's magic of its own: it imports nothing native."""
    allowed = {"layout.pxd", "records.py"}
    found = {path.name for path in sources(".py", ".pyx", ".pxd")
             if magic.lower() in path.read_text(encoding="utf-8").lower()}
    assert found <= allowed


def test_native_code_packs_no_bytes_by_format():
    """Every offset has a name in layout.pxd; `struct` would be a second place that knows it."""
    pattern = re.compile(r"\bstruct\.(?:pack|unpack)|^\s*import struct|from struct import", re.M)
    assert [path.name for path in sources(".pyx", ".pxd")
            if pattern.search(path.read_text())] == []


def test_only_the_layout_declares_shared_structs():
    """`cdef struct X "mq_..."` names a struct that lies in shared memory."""
    pattern = re.compile(r'^cdef struct \w+ "mq_', re.M)
    assert {path.name for path in sources(".pyx", ".pxd")
            if pattern.search(path.read_text())} == {"layout.pxd"}


def test_every_shared_struct_has_its_size_proved_at_compile_time():
    """All but the head of the segment, whose size travels in it, and the odd-sized ones below."""
    declared = set(re.findall(r'^cdef struct (\w+) "mq_',
                              (ROOT / "mqcore/layout.pxd").read_text(), re.M))
    proved = set(re.findall(r"sizeof\((\w+)\)", (ROOT / "mqcore/layout.pyx").read_text()))
    assert declared - proved <= {"SubscriptionEntry", "RingPlace"}


def test_no_file_names_a_machines_path():
    pattern = re.compile(r"(?<![\w.])/(?:root|work|Users|home/(?!\w*user))/[\w.-]+")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split("\0")
    wrong = []
    for name in tracked:
        path = ROOT / name
        if path.suffix not in (".py", ".pyx", ".pxd", ".toml", ".md", ".yml", ".sh", ".h", ""):
            continue
        if path.is_file() and name not in ("tests/test_architecture.py",):
            wrong += [f"{name}: {found}" for found in pattern.findall(path.read_text("utf-8"))]
    assert wrong == []


def test_only_mqcore_atomics_orders_memory():
    pattern = re.compile(r"__atomic_|__sync_|std::atomic|stdatomic")
    found = {path.name for path in sources(".pyx", ".pxd", ".h", ".py")
             if pattern.search(path.read_text())}
    assert found == {"mq_atomics.h"}
