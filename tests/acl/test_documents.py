"""
Access files against PyYAML's own reader: what is taken means the same there, what is refused has a
stated reason, whichever of the two parsers reads it; and nothing ends in another error.
"""
from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mqcore.acl import documents, rules
from mqcore.acl.documents import DEPTH_MAX, TEXT_MAX
from mqcore.acl.folder import AclFolder
from mqcore.acl.nodes import AclFileError, plain, text
from mqcore.acl.rules import read_file

SEED, DOCUMENTS = 7, 800
REASONS = ("no YAML", "a second document", "expected text", "expected plain YAML", " is no int",
           " is no bool", "deeper than", "expected the name of a value", "expected once in a map",
           "expected a map, or a list of maps")
# Tags that we do not know, and maps taken from others: of 1 and "1" in one PyYAML takes the first.
LEFT_OUT = re.compile(b"!|<<")
ACCOUNT = b"accounts:\n- {accessKey: %s, secretKey: secret-1}\n"

# What YAML is made of, with the forms that readers differ about
PIECES = (
    "a", "b: ", "- ", "? ", ": ", "\n", "\n  ", "\n- ", ", ", "{", "}", "[", "]", "&x ", "*x",
    "!!int ", "!!str ", "!!bool ", "!!null ", "!!set ", "!e ", "'", '"', "#", "|\n  ", ">-\n  ",
    "---\n", "...\n", "%YAML 1.1\n", "0x1F", "0b101", "017", "1_000", "190:20:30", "1.5", ".inf",
    "1e3", "2026-01-01", "yes", "Off", "TRUE", "~", "null", "''", '""', "<<: ", "=", "\\x41", "\t",
    "\u00e9", "\u2028", "\U0001f600", "@", "`", "accessKey", "-1", "+5", "_", "!!int '_'",
)


def random_text(chance: random.Random) -> str:
    """Pieces in any order, or a good file with some of them in it."""
    if chance.random() < 0.5:
        return "".join(chance.choices(PIECES, k=chance.randrange(1, 14)))
    text = ("accounts:\n- accessKey: abcdefgh\n  secretKey: 12345678\n"
            "  topicPerms: [a=PUB, 'b = SUB']\n")
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(PIECES) + text[at + chance.randrange(4):]
    return text


def as_texts(value: Any) -> Any:
    """Names of maps as we keep them: texts."""
    if isinstance(value, list):
        return [as_texts(item) for item in value]
    if isinstance(value, dict):
        return {text(name): as_texts(item) for name, item in value.items()}
    return value


def ours(raw: bytes) -> tuple[Any, str]:
    """(value, ""), or (None, why not)."""
    try:
        return plain(documents.read("f", raw)), ""
    except AclFileError as error:
        return None, str(error)


def theirs(raw: bytes) -> Any:
    """What safe_load makes of it; an error as one."""
    try:
        return as_texts(yaml.safe_load(raw))
    except (yaml.YAMLError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        return error


@pytest.mark.parametrize("native", [True, False], ids=["libyaml", "python"])
def test_what_is_taken_is_what_safe_load_reads(
    native: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if native and not yaml.__with_libyaml__:
        pytest.skip("this PyYAML has no libyaml")
    if not native:
        monkeypatch.setattr(documents, "_Parser", None)
    chance = random.Random(SEED)
    taken = 0
    for _ in range(DOCUMENTS):
        raw = random_text(chance).encode()
        value, refused = ours(raw)
        expected = theirs(raw)
        if refused:
            assert any(reason in refused for reason in REASONS), (raw, refused)
            if "no YAML" in refused and not native:        # its own parser
                assert isinstance(expected, Exception), (raw, refused)
        elif not isinstance(expected, Exception) and not LEFT_OUT.search(raw):
            assert value == expected, raw
            taken += 1
    assert taken > DOCUMENTS // 10


def test_both_parsers_take_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    if not yaml.__with_libyaml__:
        pytest.skip("this PyYAML has no libyaml")
    chance = random.Random(SEED + 1)
    raws = [random_text(chance).encode() for _ in range(DOCUMENTS)]
    native = [ours(raw) for raw in raws]
    monkeypatch.setattr(documents, "_Parser", None)
    for raw, (value, refused) in zip(raws, native, strict=True):
        other, other_refused = ours(raw)
        if not refused and not other_refused:
            assert value == other, raw


def test_what_is_written_is_read_again_as_it_was(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    texts = ["null", "12345678", "0x1F", "1e3", "2026-01-01", "yes", "", " a ", "- a", "a: b", "*x",
             "&x", "#", "\u00e9\u2028\u0085", "\U0001f600", "'\"", "\\", "a\tb", "line\nline",
             "%YAML", "---", "<<", "=", "x" * 5000]
    folder = AclFolder(tmp_path)
    for _ in range(100):
        document = {"accounts": [{
            "accessKey": "abcdefgh", "secretKey": "secret-1",
            chance.choice(texts): chance.choice(texts), "more": chance.sample(texts, 3)}]}
        folder.write(folder.default_file, document)
        assert folder.read_one(folder.default_file).document == document


def chain(length: int) -> bytes:
    """Lists in lists, each by an alias of the one before."""
    return b"a0: &a0 [1]\n" + b"".join(
        b"a%d: &a%d [*a%d]\n" % (i, i, i - 1) for i in range(1, length))


@pytest.mark.parametrize(("raw", "expected"), [
    (ACCOUNT % (b"0x" + b"f" * 5000), "a number of 5002 characters"),
    (ACCOUNT % (b"1" + b":1" * 20000), "a number of 40001 characters"),
    (b"? 0x" + b"f" * 5000 + b"\n: 1\n", "a number of 5002 characters"),
    (b"a: !!int ''\n", "is no int"),
    (b"a: !!int '_'\n", "is no int"),
    (b"dataVersion: [{counter: 99999999999999999999, timestamp: 1}]\n", "expected counter"),
    (b"dataVersion: [{counter: 9223372036854775807, timestamp: 1}]\n", "expected counter"),
    (chain(2000), f"deeper than {DEPTH_MAX}"),
    (b"a: &a " + b"x" * 1_000_000 + b"\nb:\n" + b"- *a\n" * 40, f"more than {TEXT_MAX} characters"),
], ids=["hexadecimal", "sexagesimal", "name", "empty-int", "int-of-nothing", "version",
        "last-version", "deep-aliases", "long-aliases"])
def test_a_file_that_is_too_much_is_refused_as_any_other(raw: bytes, expected: str) -> None:
    with pytest.raises(AclFileError, match=expected):
        read_file("f", raw)


def test_addresses_count_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "ADDRESSES_MAX", 5)
    whole = b"globalWhiteRemoteAddresses: [&a '1.1.1.1,1.1.1.2', *a]\n" + ACCOUNT % b"abcdefgh"
    assert len(read_file("f", whole).white) == 4
    with pytest.raises(AclFileError, match="f:3: more than 5 addresses"):
        read_file("f", whole.replace(b"secret-1", b"secret-1, whiteRemoteAddress: *a"))


def test_many_maps_that_are_taken_from_cost_as_much_as_many_maps() -> None:
    many = b",".join(b"{k%d: 1}" % number for number in range(16_000))
    taken = []
    for name in (b"more", b"<<"):
        raw = ACCOUNT.replace(b"}", b", %s: [%s]}" % (name, many)) % b"abcdefgh"
        began = time.thread_time()
        assert read_file("f", raw).path == "f"
        taken.append(time.thread_time() - began)
    assert taken[1] < 4 * taken[0], taken


@pytest.mark.parametrize("make", [
    lambda: ACCOUNT % b"abcdefgh", lambda: chain(DEPTH_MAX - 1),
    lambda: ACCOUNT % b"9223372036854775808"], ids=["account", "deep", "large-number"])
def test_what_is_just_small_enough_is_taken(make: Callable[[], bytes]) -> None:
    assert read_file("f", make()).path == "f"
