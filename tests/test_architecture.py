"""The rules of the code base that a machine can hold: imports, sizes, layouts, waiting."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import pytest

import mqcore.client
from tests.imports import ROOT, circles, graph, imported, module_of, sources

LINES_MAX = 600

# Who imports whom, from the top down: exactly this. A package may always import itself.
ALLOWED: dict[str, set[str]] = {
    "tls": {"stamps", "wire"},
    "parents": set(), "stamps": set(), "thread_times": set(),
    "admin": {"acl", "backup", "broker", "client", "events", "figures", "layout", "namesrv",
              "parents", "participants", "replication", "shm", "store", "thread_times", "wire",
              "workers"},
    "failover": {"layout", "shm"},
    "http": {"broker", "figures", "layout", "participants", "shm", "stamps", "thread_times",
             "wire"},
    "backup": {"broker", "layout", "store", "wire"},
    "processes": {"acl", "broker", "http", "layout", "page", "participants", "shm", "workers"},
    "page": {"acl", "admin", "broker", "client", "filter", "http", "shm", "tls", "wire",
             "workers"},
    "workers": {"acl", "backup", "broker", "client", "failover", "filter", "layout", "namesrv",
                "http", "net", "parents", "participants", "replication", "shm", "stamps", "store",
                "thread_times", "tls", "turns", "wire"},
    "replication": {"atomics", "client", "clock", "endian", "epoll", "hmac_sha1", "layout", "net",
                    "shm", "store", "threads", "tls", "wire"},
    "bench": {"admin", "client", "epoll", "hmac_sha1", "wire", "layout", "endian", "text", "tls"},
    "broker": {"acl", "store", "filter", "layout", "participants", "replication", "tls", "turns",
               "wire"},
    "acl": {"shm", "stamps", "store", "turns", "wire"},
    "namesrv": {"acl", "net", "tls", "turns", "wire"},
    "spark": {"client", "filter", "layout", "store", "text", "wire"},
    "client": {"endian", "layout", "text", "wire"},     # of the broker nothing: layout is Part 1's
    "contrib": {"client"},
    "testing": {"acl", "broker", "namesrv", "parents", "turns", "wire"},
    "net": {"epoll", "filter", "store", "wire", "shm", "layout", "names", "atomics", "endian",
            "clock", "half", "hmac_sha1", "invariants", "text", "threads", "tls"},
    "filter": {"store", "shm", "layout", "atomics", "text", "wire"},
    "store": {"wire", "shm", "layout", "names", "atomics", "endian", "clock", "invariants",
              "text"},
    "wire": {"endian", "layout", "text", "turns"},
    "shm": {"epoll", "figures", "layout", "names", "participants", "atomics", "clock", "endian",
            "hmac_sha1", "invariants"},
    "names": {"layout", "text"},
    "figures": {"participants"}, "events": set(), "participants": set(),
    "layout": {"figures", "file_layout", "participants"}, "file_layout": set(),
    "turns": set(), "config": set(), "half": set(),
    "atomics": set(), "endian": set(), "clock": set(), "epoll": set(), "invariants": set(),
    "hmac_sha1": set(), "text": set(), "threads": set(),
}

# The same of the rooms of mqcore/workers.
WORKER_ROOMS: dict[str, set[str]] = {
    "process": set(),
    "writer": {"process"},
    "dispatcher": {"process"},
    "serving": {"process"},
    "scheduling": {"process"},
    "replication": {"process"},
    "failover": {"process", "replication"},
    "coordinator": {"failover", "process", "replication"},
    "supervisor": {"failover", "process", "writer"},
}

# The same of the rooms and the shared words of mqcore/net.
NET_ROOMS: dict[str, set[str]] = {
    "transport": set(),
    "identity": set(),
    "requests": {"transport"},
    "remoting": {"transport", "identity", "requests"},
    "serving": {"transport", "identity", "requests", "remoting"},
    "nghttp2": set(),
    "grpc": {"transport", "nghttp2", "requests", "remoting", "serving"},
    "framed": {"transport", "remoting"},
    "secured": {"transport"},
    "closed": {"transport", "remoting"},
    "probes": {"transport", "requests", "remoting", "serving"},
}


def package_of(module: str) -> str:
    """Of `mqcore.store.log.append`: store; of the root package itself: nothing."""
    return f"{module}.".split(".")[1]


def room_of(module: str) -> str:
    """Of `mqcore.net.transport.work`: transport."""
    return f"{module}..".split(".")[2]


@cache
def project() -> dict[str, set[str]]:
    """All modules, and which of them each imports."""
    return graph(sources(".py", ".pyx", ".pxd", ".pyi"))


def used(group_of: Callable[[str], str], under: str) -> dict[str, dict[str, str]]:
    """group -> group that it imports -> a module that does."""
    found: dict[str, dict[str, str]] = {}
    for module, targets in project().items():
        if not module.startswith(f"{under}."):
            continue
        group = group_of(module)
        edges = found.setdefault(group, {})
        for target in targets:
            if target.startswith(f"{under}.") and group_of(target) not in ("", group):
                edges[group_of(target)] = module
    return found


@pytest.mark.parametrize(("allowed", "group_of", "under"), [
    (ALLOWED, package_of, "mqcore"), (NET_ROOMS, room_of, "mqcore.net"),
    (WORKER_ROOMS, room_of, "mqcore.workers")], ids=["mqcore", "net", "workers"])
def test_imports_are_those_of_the_table(
        allowed: dict[str, set[str]], group_of: Callable[[str], str], under: str):
    found = used(group_of, under)
    assert set(found) == set(allowed)
    wrong = [f"{group} imports {target} in {module}" for group, edges in found.items()
             for target, module in edges.items() if target not in allowed[group]]
    unused = [f"{group} does not import {target}" for group, targets in allowed.items()
              for target in targets if target not in found[group]]
    assert (wrong, unused) == ([], [])


def test_the_client_needs_no_part_of_the_broker():
    """Applications install it for its own sake: nothing of the broker is loaded with it."""
    program = ("import sys, mqcore.client\n"
               "print(*sorted(name for name in sys.modules if name.startswith('mqcore.')))")
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout.split()
    allowed = {"client", "wire", "layout", "turns", "_cyutility"}
    assert {package_of(name) for name in loaded} - {""} <= allowed


def test_what_is_made_for_frameworks_uses_the_client_as_anybody_does():
    """mqcore/contrib knows the client's public names; its parts know nothing of each other."""
    wrong = [f"{path.name}: {name}" for path in sources(".py", folders=("mqcore/contrib",))
             for name in imported(path, module_of(path))
             if name.startswith("mqcore.") and name != "mqcore.client"
             and name.removeprefix("mqcore.client.") not in mqcore.client.__all__
             and not f"{name}.".startswith(
                 ".".join((*module_of(path).split(".")[:3], "")))]
    assert wrong == []


def test_the_patterns_stand_on_the_clients_public_names_alone():
    """What they need of the client an application can have, too."""
    found = {name for path in sources(".py", folders=("mqcore/client/patterns",))
             for name in imported(path, module_of(path)) if name.startswith("mqcore.")}
    assert "mqcore.client.ReceivedMessage" in found
    wrong = {name for name in found if not name.startswith("mqcore.client.patterns")
             and name.removeprefix("mqcore.client.") not in mqcore.client.__all__}
    assert wrong - {"mqcore.client"} == set()


def test_the_client_needs_no_database():
    """Only who asks for the patterns needs SQLAlchemy."""
    program = ("import sys, mqcore.client.names\n"
               "assert 'sqlalchemy' not in sys.modules\n"
               "sys.modules['sqlalchemy'] = None\n"
               "try: import mqcore.client.patterns\n"
               "except ImportError as error: print(error)\n")
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True,
                          text=True, check=True).stdout
    assert "pip install 'mqcore[patterns]'" in said


def test_no_modules_import_each_other():
    """Nor in a circle over others; an interface counts as the module that it is of."""
    assert circles(project()) == []


def test_a_circle_is_found_over_any_number_of_modules():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == [["d", "e"], ["a", "b", "c"]]


def test_nothing_imports_tests_or_perf():
    pattern = re.compile(r"^\s*(?:from|import)\s+(?:tests|perf)\b", re.M)
    assert [path for path in sources(".py", ".pyx") if pattern.search(path.read_text())] == []


def test_the_import_scan_sees_every_form():
    """In Cython the scan is a regular expression: here is what it must not miss."""
    probe = ROOT / "tests" / "golden" / "imports.txt"
    assert list(imported(probe, "mqcore.here.probe")) == [
        "mqcore.net.loadgen.run", "mqcore.shm.ring.Ring", "mqcore.broker.core", "mqcore.wire",
        "mqcore.store.record", "mqcore.layout", "other.mqcore.thing", "mqcore.store.io.StoreIo",
        "mqcore.store.io.store_io", "mqcore.here.near.one", "mqcore.far.two", "mqcore.far.three",
        "mqcore.here.beside", "mqcore.names.a", "mqcore.names.b", "mqcore.clock", "mqcore.turns"]


def test_the_native_core_imports_no_python_part():
    """Native modules hold no rules: they know of no broker, client or worker. The client's own
    raise the client's errors."""
    wrong = [f"{path.relative_to(ROOT)}: {name}" for path in sources(".pyx", ".pxd")
             if package_of(module_of(path)) != "client"
             for name in imported(path, module_of(path))
             if package_of(name) in ("broker", "namesrv", "client", "admin", "dashboard", "workers")
             and name.startswith("mqcore.")]
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
        text = path.read_text(encoding="utf-8")
        if "sleep" not in text:
            continue
        tree = ast.parse(text)
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
    allowed = {"layout.pxd", "file_layout.pxd", "records.py"}
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


def test_threads_times_are_read_in_one_place():
    pattern = re.compile(r"/schedstat\b")
    found = {str(path.relative_to(ROOT)) for path in sources(
        ".py", ".pyx", folders=("mqcore", "workers", "tests", "perf"))
        if pattern.search(path.read_text(encoding="utf-8"))}
    assert found - {"tests/test_architecture.py"} == {"mqcore/thread_times.py"}


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


def test_an_invariant_costs_nothing_outside_the_debug_build():
    """mqcore/invariants.pxd says why; the call ends at the first line that closes its brackets."""
    call = re.compile(r"^ +invariant\((.*?)\)$", re.M | re.S)
    found = [(path.name, text) for path in sources(".pyx", ".pxd")
             for text in call.findall(path.read_text(encoding="utf-8"))]

    assert len(found) > 20
    assert [one for one in found if re.search(r"\b(?:and|or|if|min|max|abs)\b", one[1])] == []


def test_only_mqcore_atomics_orders_memory():
    pattern = re.compile(r"__atomic_|__sync_|std::atomic|stdatomic")
    found = {path.name for path in sources(".pyx", ".pxd", ".h", ".py")
             if pattern.search(path.read_text())}
    assert found == {"mq_atomics.h"}


# -- numbered rules: stated in an interface, cited where they are kept -----------------------------

RULE = r"[A-Z]{1,2}\d{1,2}"
STATED = re.compile(rf"^(?:#   |  )({RULE})  +(?=\S)", re.M)
SAID = re.compile(r'""".*?"""|#[^\n]*|/\*.*?\*/|invariant\("[^"]*"', re.S)
CITED = re.compile(rf"(?<![\w./%-]){RULE}(?![\w%-])")
OF_A_TEST = re.compile(rf"# +({RULE}(?:, {RULE})*)$", re.M)
NO_RULES = {"LZ4"}


def stated_rules() -> list[str]:
    return [rule for path in sources(".pxd", ".pyx")
            for rule in STATED.findall(path.read_text(encoding="utf-8"))]


def test_a_rule_is_stated_once() -> None:
    """Letters and number are all that a reader has to find it by, wherever it is cited."""
    stated = stated_rules()
    assert {rule for rule in stated if stated.count(rule) > 1} == set()


def test_every_rule_that_is_cited_is_stated() -> None:
    cited = {(str(path.relative_to(ROOT)), rule)
             for path in sources(".pxd", ".pyx", ".h", ".py")
             for text in SAID.findall(path.read_text(encoding="utf-8"))
             for rule in CITED.findall(text)}
    cited |= {(str(path.relative_to(ROOT)), rule) for path in sources(".py", folders=("tests",))
              for rules in OF_A_TEST.findall(path.read_text(encoding="utf-8"))
              for rule in rules.split(", ")}
    known = {*stated_rules(), *NO_RULES}
    assert len(cited) > 300
    assert {(path, rule) for path, rule in cited if rule not in known} == set()
