"""The checker of phrases and subjects finds what it is for, and nothing else."""
import re
from pathlib import Path

import pytest

from tests.house import prose, subjects

HACKING = Path(__file__).resolve().parents[2] / "HACKING.md"


def _pairs() -> list[tuple[str, str]]:
    section = HACKING.read_text().split("## Plain English\n")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| (.+) \| (.+) \|$", section)
    return [row for row in rows if row[0] != "before"]


def test_hacking_has_twenty_pairs():
    assert len(_pairs()) == 20


@pytest.mark.parametrize(("before", "after"), _pairs())
def test_a_pair_s_left_side_is_found_and_its_right_side_is_clean(before, after):
    assert prose.findings("a.md", before)
    assert prose.findings("a.md", after) == []


@pytest.mark.parametrize(("path", "source", "lines"), [
    ("a.py", "x = 1  # nobody reads it\ny = 'ok'\n", [1]),
    ("a.py", '"""One.\n\nWhat is left waits.\n"""\n', [3]),
    ("a.py", "nobody = 1\nalone = nobody\n", []),
    ("a.py", "# the first line of\n# it ends here\n", [2]),
    ("a.pyx", "cdef int f():   # what is asked for: a noun\n    pass\n", []),
    ("a.pyx", 'raise ValueError("sent as it is")\n', [1]),
    ("a.h", "/* one of them */\nint of, it;\n", [1]),
    ("a.md", "Text.\n```\nnobody\n```\n`nobody` and `of it`\n", []),
    ("a.md", "# T\n\nWho sends twice?\n", []),
    ("a.md", "# T\n\nWho sends twice waits.\n", [3]),
    ("a.toml", "# nobody\nkey = 1\n", [1]),
])
def test_comments_strings_and_documents_are_read_and_code_is_not(path, source, lines):
    assert [finding.line for finding in prose.findings(path, source)] == lines


def test_a_folder_is_two_names_at_most():
    assert prose.folder_of("README.md") == "."
    assert prose.folder_of("mqcore/turns.py") == "mqcore"
    assert prose.folder_of("mqcore/client/consume/puller.py") == "mqcore/client"


@pytest.mark.parametrize("subject", [
    "net: wake the writer once", "client: pass a queue's first position on",
    "docs, client: name the types", "Merge what was done side by side",
])
def test_a_good_subject_has_no_fault(subject):
    assert subjects.fault(subject) is None


@pytest.mark.parametrize(("subject", "says"), [
    ("The roadmap has figures", "room: imperative"),
    ("net: adds a ring", "no imperative"),
    ("net: added a ring", "no imperative"),
    ("net: adding a ring", "no imperative"),
    ("net: add a ring.", "full stop"),
    ("net: " + "add " * 20, "72 are allowed"),
])
def test_a_bad_subject_is_told_why(subject, says):
    assert says in (subjects.fault(subject) or "")
