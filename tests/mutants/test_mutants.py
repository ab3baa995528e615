"""Mutants fit the code that is there, and a switch means what its two sides say."""
from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.mutants import __main__ as runner
from tests.mutants.catalogue import ROOT, Mutant, MutantError, mutants, rules, without
from tests.mutants.switch import VARIABLE, switched

EVERY = mutants()
NO_RULE = re.compile(r"[a-z]+")             # of what is not lettered


def of_files() -> dict[str, list[Mutant]]:
    found = defaultdict(list)
    for one in EVERY:
        found[one.file].append(one)
    return found


def test_every_rule_has_a_mutant_or_a_reason() -> None:
    """`python -m tests.mutants --bare` names those that have none."""
    known = rules()
    have = {one.rule for one in EVERY}

    assert known.keys() - have - without().keys() == set()
    assert {rule for rule in have if not NO_RULE.fullmatch(rule)} - known.keys() == set()
    assert without().keys() <= known.keys() - have


def test_numbers_tell_mutants_apart() -> None:
    assert len({one.number for one in EVERY}) == len(EVERY)


@pytest.mark.parametrize(("file", "own"), of_files().items())
def test_mutants_of_a_file_apply(file: str, own: list[Mutant]) -> None:
    text = switched((ROOT / file).read_text(encoding="utf-8"), own, "mq_mutant")

    assert all(str(one.number) in text for one in own)
    if file.endswith(".py"):
        ast.parse(text)


def test_tests_of_mutants_are_there() -> None:
    missing = []
    for one in EVERY:
        for test in one.tests:
            path, _, name = test.partition("::")
            place = ROOT / path
            if not place.exists() or (
                    name and f"def {name}(" not in place.read_text(encoding="utf-8")):
                missing.append(test)
    assert missing == []


SOURCE = '''\
LIMIT = 3


def kind(number):
    if number > LIMIT:          # many
        return "many"
    elif number == 0:
        return "none"
    for one in range(number):
        if one == 2:
            return "three"
    else:
        return "few"
'''
CASES = {                                   # old, new -> what kind() says of 0, 1, 3, 4
    ("LIMIT = 3\n", "LIMIT = 4\n"): ("none", "few", "three", "three"),
    ("    if number > LIMIT:", "    if number >= LIMIT:"): ("none", "few", "many", "many"),
    ("    if number > LIMIT:     # the comment of another day\n", "    if number > 0:\n"):
        ("none", "many", "many", "many"),
    ("    elif number == 0:\n", "    elif number == 1:\n"): ("few", "none", "three", "many"),
    ('return "three"', 'return "3"'): ("none", "few", "3", "many"),
    ("        if one == 2:\n            return \"three\"\n", "        pass\n"):
        ("none", "few", "few", "many"),
    ("    for one in range(number):\n", "    for one in range(1):\n"):
        ("none", "few", "few", "many"),
}


def made(old: str, new: str) -> Mutant:
    return Mutant("room", "rule", "kind.py", old, new, ())


@pytest.mark.parametrize(("chosen", "said"), [(None, ("none", "few", "three", "many")),
                                              *CASES.items()])
def test_the_variable_chooses_one_mutant_of_a_file(
    tmp_path: Path, chosen: tuple[str, str] | None, said: tuple[str, ...],
) -> None:
    text = switched(SOURCE, [made(*case) for case in CASES], "mq_mutant")
    (tmp_path / "kind.py").write_text(text, encoding="utf-8")
    number = made(*chosen).number if chosen else 0
    done = subprocess.run(
        [sys.executable, "-c", "import kind; print(*map(kind.kind, (0, 1, 3, 4)))"],
        cwd=tmp_path, env=os.environ | {VARIABLE: str(number)}, capture_output=True, text=True,
        check=True)

    assert tuple(done.stdout.split()) == said


@pytest.mark.parametrize(("old", "why"), [
    ("LIMIT = 9\n", "`old` stands there 0 times, not once"),
    ("number", "`old` stands there 4 times, not once"),
    ("    else:\n        return \"few\"\n", "it changes a branch without its `if`"),
    ("            return \"three\"\n    else:\n", "it begins in a block and ends behind it"),
])
def test_a_mutant_that_cannot_be_made_says_why(old: str, why: str) -> None:
    with pytest.raises(MutantError, match=re.escape(why)):
        switched(SOURCE, [made(old, "")], "mq_mutant")


@pytest.mark.parametrize(("ended", "is_open", "word"), [
    (0, False, "SURVIVES"), (1, False, "noticed"), (None, False, "noticed"), (-9, False, "noticed"),
    (0, True, "open"), (1, True, "NOTICED"), (4, False, "NOT TESTED")])
def test_an_end_of_its_tests_says_what_became_of_a_mutant(
    ended: int | None, is_open: bool, word: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None: they took too long; below 0: by a signal; 4: pytest did not find them."""
    mutant = Mutant("room", "rule", "kind.py", "old", "new", (), open="why" * is_open)
    monkeypatch.setattr(runner, "pytest", lambda *_: ended)

    line = runner.verdict(mutant)
    assert line.startswith(f"{word} ")
    assert runner.is_bad(line) == (word in {"SURVIVES", "NOTICED", "NOT TESTED"})


def test_a_handful_is_another_one_for_another_commit_and_holds_no_open_mutant() -> None:
    chosen = [runner.handful(EVERY, f"{number:x}") for number in range(100)]

    assert all(3 < len(few) <= 5 and not any(one.open for one in few) for few in chosen)
    assert chosen[7] == runner.handful(EVERY, "7")
    assert len({one for few in chosen for one in few}) > 40
