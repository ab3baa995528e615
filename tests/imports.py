"""Who imports whom: every import and cimport of a tree, in whatever form, module by module."""
from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("mqcore", "workers", "config")
INSTALLED_AS = {"workers": "processes"}       # setup.py PACKAGES
PYTHON = (".py", ".pyi")
CYTHON = (".pyx", ".pxd")
STATEMENT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<source>\.*[\w.]*)[ \t]+c?import[ \t]*(?P<names>\([^)]*\)|[^\n]*)"
    r"|c?import[ \t]+(?P<modules>[^\n]*))", re.M)


UNIT = "_native"                        # what setup.py makes of the native modules of a room


def sources(*suffixes: str, folders: Iterable[str] = FOLDERS) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in suffixes and "__pycache__" not in path.parts
            and "node_modules" not in path.parts and path.stem != UNIT]


def compiled_as(source: Path) -> Path:
    """Itself, or the .pyx of the room's unit that includes it."""
    unit = source.with_name(f"{UNIT}.pyx")
    included = unit.exists() and f'include "{source.name}"\n' in unit.read_text(encoding="utf-8")
    return unit if included else source


def module_of(path: Path) -> str:
    """Its dotted name; of an `__init__` that of the package, of an interface that of its module."""
    parts = list(path.relative_to(ROOT).parent.parts)
    if path.stem != "__init__":
        parts.append(path.stem)
    if parts[0] == "mqcore":
        return ".".join(parts)
    return ".".join(["mqcore", INSTALLED_AS.get(parts[0], parts[0]), *parts[1:]])


def without_comments(text: str) -> str:
    """Cython's text: lines joined, comments and triple-quoted texts gone."""
    text = re.sub(r'("""|\'\'\').*?\1', '""', text, flags=re.S)
    return re.sub(r"#[^\n]*", "", text).replace("\\\n", " ")


def cython_imports(text: str) -> Iterator[tuple[str, list[str]]]:
    for found in STATEMENT.finditer(without_comments(text)):
        if found["source"]:
            names = re.split(r"[,\s]+", re.sub(r"\bas\s+\w+", "", found["names"].strip("()")))
            yield found["source"], [name for name in names if name]
        elif found["modules"]:
            for name in found["modules"].split(","):
                yield name.split()[0] if name.split() else "", []


def statements(text: str) -> Iterator[ast.AST]:
    """
    The statements of a Python file, with those within others. Most of a tree are expressions, which
    nobody walks here: that takes as long again as the parser.
    """
    left: list[ast.AST] = [ast.parse(text)]
    while left:
        node = left.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, part, ())


def python_imports(text: str) -> Iterator[tuple[str, list[str]]]:
    for node in statements(text):
        if isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []


@functools.cache
def imports_of(text: str, *, is_python: bool) -> list[tuple[str, list[str]]]:
    return list((python_imports if is_python else cython_imports)(text))


def imported(path: Path, module: str, *, by_line: bool = False) -> Iterator[str]:
    """
    Dotted names that a file imports: modules, or what is in them; none of them relative. by_line:
    only those that begin a line, as ruff wants all of them (E701, E702), in a tenth of the time.
    """
    text = path.read_text(encoding="utf-8")
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for source, names in imports_of(text, is_python=path.suffix in PYTHON and not by_line):
        level = len(source) - len(source.lstrip("."))
        if level:
            above = package.split(".")[:len(package.split(".")) - level + 1]
            source = ".".join([*above, source[level:]] if source[level:] else above)
        yield from (f"{source}.{name}" for name in names) if names else (source,)


def graph(paths: Iterable[Path]) -> dict[str, set[str]]:
    """module -> modules of these that it imports."""
    files = list(paths)
    known = {module_of(path) for path in files}
    edges: dict[str, set[str]] = {name: set() for name in known}
    for path in files:
        module = module_of(path)
        for name in imported(path, module):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != module:
                edges[module].add(target)
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each imports each, over however many others (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(edges[node]):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found
