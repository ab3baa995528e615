"""A class name means one thing: in a room, and over all rooms where the shared memory has it."""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLASS = re.compile(
    r"^ *(?:class|(?:cdef|cpdef|ctypedef) (?:packed )?(?:class|struct|union|enum)) (\w+)"
    r'(?: "\w+")? *[(:]', re.M)                  # its name in C may follow
AS_THEIR_FRAMEWORK = "contrib"     # its classes are called as those of the framework are


def classes(path: Path) -> Iterator[str]:
    """Names of classes, structs and enums; what is a module's own alone (_Name) is left out."""
    names = CLASS.findall(path.read_text(encoding="utf-8"))
    return (name for name in names if not name.startswith("_"))


def rooms(root: Path) -> Mapping[str, Mapping[str, set[str]]]:
    """room -> class name -> modules that have one of that name."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted((root / "mqcore").rglob("*")):
        module = path.relative_to(root).with_suffix("")
        if path.suffix in (".py", ".pyx", ".pxd"):
            room = module.parts[1] if len(module.parts) > 2 else module.parts[0]
            for name in classes(path):
                found[room][name].add(str(module))
    return found


def shared(found: Mapping[str, Mapping[str, set[str]]]) -> list[str]:
    """The names that mean two things."""
    of_memory = {name for name, modules in found["mqcore"].items() if "mqcore/layout" in modules}
    twice = {name: modules for room, names in found.items() if room != AS_THEIR_FRAMEWORK
             for name, modules in names.items() if len(modules) > 1}
    twice |= {name: modules for room, names in found.items()
              for name, modules in names.items() if name in of_memory and room != "mqcore"}
    return sorted(f"{name}: {', '.join(sorted(modules))}" for name, modules in twice.items())


def test_no_class_has_the_name_of_another_one_of_its_room_nor_of_the_shared_memory() -> None:
    found = rooms(ROOT)
    assert {"client", "store", "net", "spark", "workers"} <= set(found)
    assert "QueueEntry" in found["mqcore"]

    assert shared(found) == []


@pytest.mark.parametrize(("files", "said"), [
    ({"client/a.py": "class Same: pass", "client/core/b.pyx": "cdef class Same:\n    pass"},
     ["Same: mqcore/client/a, mqcore/client/core/b"]),
    ({"layout.pxd": "cdef struct Row:\n    int at", "client/a.py": "class Row: pass"},
     ["Row: mqcore/client/a"]),
    ({"client/a.py": "class Same: pass", "store/b.py": "class Same: pass"}, []),
    ({"store/a.pxd": "cdef class Same:\n    pass", "store/a.pyx": "cdef class Same: pass"}, []),
    ({"client/a.py": "class _Own: pass", "client/b.py": "class _Own: pass"}, []),
])
def test_which_names_mean_two_things(
    tmp_path: Path, files: dict[str, str], said: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / "mqcore" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mqcore" / name).write_text(text)

    assert shared(rooms(tmp_path)) == said
