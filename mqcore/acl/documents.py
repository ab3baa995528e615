"""
YAML as access files have it: plain values with the line that each stands in. It is imported where
such a file is read or written: a broker without access control needs no YAML.

Whoever may write such a file owns the broker, and may still send it a broken one: size, depth,
aliases and the number of values have limits, and nothing but texts, lists and maps is made of it.
"""
from __future__ import annotations

from typing import Any

import yaml

from mqcore.acl.nodes import SIZE_MAX, AclFileError, Node, text

DEPTH_MAX = 16
VALUES_MAX = 2_000_000             # counted anew wherever an alias repeats them
TEXT_MAX = SIZE_MAX                # characters of all values, counted so
NUMBER_LENGTH_MAX = 64
_Parser: Any = getattr(yaml.cyaml, "CParser", None) if yaml.__with_libyaml__ else None
_resolver = yaml.resolver.Resolver()
_constructor = yaml.constructor.SafeConstructor()
_PREFIX = "tag:yaml.org,2002:"
_MERGE = f"{_PREFIX}merge"


class _PlainParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """Where PyYAML has no libyaml."""

    def __init__(self, stream: bytes) -> None:
        yaml.reader.Reader.__init__(self, stream)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


def read(path: str, raw: bytes) -> Node:
    """The one document of a file; of an empty one None. Raises AclFileError."""
    if len(raw) > SIZE_MAX:
        raise AclFileError(path, 0, f"more than {SIZE_MAX} bytes")
    try:
        return _Builder(path, (_Parser or _PlainParser)(raw)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise AclFileError(path, mark.line + 1 if mark else 0,
                           f"no YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise AclFileError(path, 0, f"no YAML: {' '.join(str(error).split())[:200]}") from None


class _Builder:
    def __init__(self, path: str, parser: Any) -> None:
        self._path = path
        self._parser = parser
        self._anchors: dict[str, Node] = {}
        self._values = 0
        self._characters = 0

    def document(self) -> Node:
        found: list[Node] = []
        while (event := self._parser.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                if found:
                    raise self._wrong(event, "a second document: expected one")
            elif isinstance(event, yaml.NodeEvent):
                found.append(self._value(event))
        return found[0] if found else Node(None, 1)

    def _wrong(self, event: Any, what: str) -> AclFileError:
        return AclFileError(self._path, event.start_mark.line + 1, what)

    def _deep(self, event: Any) -> AclFileError:
        return self._wrong(event, f"deeper than {DEPTH_MAX} levels, with what aliases repeat")

    def _counted(self, event: Any, count: int, characters: int) -> None:
        self._values += count
        self._characters += characters
        if self._characters > TEXT_MAX:
            raise self._wrong(event, f"more than {TEXT_MAX} characters, those that aliases repeat "
                                     "among them")
        if self._values > VALUES_MAX:
            raise self._wrong(event, f"more than {VALUES_MAX} values, those that aliases repeat "
                                     "among them")

    def _value(self, event: Any, depth: int = 0) -> Node:
        if depth > DEPTH_MAX:
            raise self._deep(event)
        if isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(event.anchor or "")
            if node is None:
                raise self._wrong(event, f"*{str(event.anchor)[:40]}: expected the name of a value "
                                         "that ends above")
            if depth + node.height > DEPTH_MAX:
                raise self._deep(event)
            self._counted(event, node.count, node.size)
            return node
        before, characters = self._values, self._characters
        self._counted(event, 1, len(event.value) if isinstance(event, yaml.ScalarEvent) else 0)
        node = Node(None, event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            node.value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.value = []
            while not isinstance(item := self._parser.get_event(), yaml.SequenceEndEvent):
                node.value.append(self._value(item, depth + 1))
        else:
            node.value, node.takes = self._map(depth)
        if isinstance(node.value, list | dict):
            below = node.value if isinstance(node.value, list) else node.value.values()
            node.height = 1 + max((item.height for item in below), default=0)
        node.count, node.size = self._values - before, self._characters - characters
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _map(self, depth: int) -> tuple[dict[str, Node], bool]:
        """What a map says itself, else what it takes from others by `<<`, and whether it does."""
        own: dict[str, Node] = {}
        others: list[dict[str, Node]] | None = None
        while not isinstance(item := self._parser.get_event(), yaml.MappingEndEvent):
            if isinstance(item, yaml.ScalarEvent) and (
                    item.tag == _MERGE or (item.value == "<<" and _tag(item) == _MERGE)):
                if others is not None:
                    raise self._wrong(item, "<<: expected once in a map")
                self._counted(item, 1, len(item.value))
                others = self._others(item, self._value(self._parser.get_event(), depth + 1))
                continue
            key = self._value(item, depth + 1)
            if isinstance(key.value, list | dict):
                raise self._wrong(item, "a list or map as a name: expected text")
            own[text(key.value)] = self._value(self._parser.get_event(), depth + 1)
        for other in others or ():
            for name, value in other.items():
                own.setdefault(name, value)
        return own, others is not None

    def _others(self, event: Any, node: Node) -> list[dict[str, Node]]:
        """
        The maps that a `<<` names; what an earlier one says counts. Readers differ about maps that
        take from others themselves.
        """
        found = node.value if isinstance(node.value, list) else [node]
        if not all(isinstance(one.value, dict) and not one.takes for one in found):
            raise self._wrong(event, "<<: expected a map, or a list of maps, without << in them")
        return [one.value for one in found]

    def _scalar(self, event: Any) -> Any:
        tag = _tag(event)
        kind = tag.removeprefix(_PREFIX)
        node = yaml.ScalarNode(tag, event.value)
        if kind == "int" and len(event.value) > NUMBER_LENGTH_MAX:
            raise self._wrong(event, f"a number of {len(event.value)} characters: expected text in "
                                     "quotes")
        try:
            if kind == "str":
                return event.value
            if kind == "int":
                return _constructor.construct_yaml_int(node)
            if kind == "bool":
                return _constructor.construct_yaml_bool(node)
            if kind == "null":
                return None
        except (ValueError, KeyError, IndexError):
            raise self._wrong(event, f"{event.value[:40]!a} is no {kind}") from None
        if kind in ("float", "timestamp"):
            raise self._wrong(event, "a number with a fraction, or a date: expected text in quotes")
        raise self._wrong(event, f"the tag {tag[:80]!a}: expected plain YAML")


def _tag(event: Any) -> str:
    """Of a scalar: its own, or by what it looks like."""
    if event.tag is not None and event.tag != "!":
        return str(event.tag)
    return str(_resolver.resolve(yaml.ScalarNode, event.value,
                                 event.implicit if event.tag is None else (False, True)))


def dumped(document: dict[str, Any]) -> bytes:
    """A file of plain values: block style, in the order of the names, no aliases."""
    return yaml.dump(document, Dumper=_Dumper, default_flow_style=False, sort_keys=False,
                     allow_unicode=True, width=4096).encode()


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True
