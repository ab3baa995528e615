"""Citations such as `store.md 9.4` lead to headings of docs/protocol."""
from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROTOCOL = ROOT / "docs" / "protocol"
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".h", ".c", ".md", ".toml", ".sh")
CHUNK = r"\d+(?:\.\d+)*(?: steps? [a-z0-9]+\b(?: to [a-z0-9]+\b)?)?"
# a page, then numbers: `store.md 3.4, 6.6`, `broker.md 7.1 to 7.3`, `broker.md 6.1 steps 5 to 7`
CITATION = re.compile(rf"(?<![\w./-])([\w-]+)\.md {CHUNK}(?:(?:, | to ){CHUNK})*")
NUMBER = re.compile(r"(?<!step )(?<!steps )(?<!\w)\d+(?:\.\d+)*(?!\w)")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)\.? ", re.M)
OWN_SECTION = re.compile(r"\bsections? (\d+(?:\.\d+)*)")


def headings(page: Path) -> set[str]:
    return set(HEADING.findall(page.read_text(encoding="utf-8")))


PAGES = {page.stem: headings(page) for page in sorted(PROTOCOL.glob("*.md"))
         if page.stem != "README"}
# a page's name that is no citation, nor a path or a link
BARE = re.compile(rf"(?<![\w./`\[(-])(?:{'|'.join(PAGES)})\.md(?! \d)(?![\w)`\]])")


def sources() -> Iterator[Path]:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split("\0")
    for name in tracked:
        path = ROOT / name
        if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__):
            yield path


def sections(citation: str) -> list[str]:
    """The section numbers of a citation, without its steps."""
    without_steps = re.sub(r" steps? \w+(?: to \w+)?", "", citation)
    return NUMBER.findall(without_steps.partition(".md ")[2])


def troubles(text: str) -> list[tuple[int, str]]:
    """(line, citation) of each one that leads nowhere or has another form."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in CITATION.finditer(line):
            known = PAGES.get(match[1])
            if known is None or not set(sections(match[0])) <= known:
                found.append((number, match[0]))
        found += [(number, match[0]) for match in BARE.finditer(line)]
    return found


@pytest.mark.slow
def test_every_citation_leads_to_a_heading() -> None:
    wrong = [f"{path.relative_to(ROOT)}:{number}: {citation}" for path in sources()
             for number, citation in troubles(path.read_text(encoding="utf-8"))]

    assert wrong == []


def test_the_scan_sees_the_citations_that_are_there() -> None:
    cited = {(match[1], section) for path in sources()
             for match in CITATION.finditer(path.read_text(encoding="utf-8"))
             for section in sections(match[0])}

    assert {page for page, _ in cited} == set(PAGES)
    assert len(cited) > 100


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_names_sections_of_its_own_that_exist(page: str) -> None:
    text = (PROTOCOL / f"{page}.md").read_text(encoding="utf-8")

    assert set(OWN_SECTION.findall(text)) - PAGES[page] == set()


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_number_is_the_heading_of_one_section(page: str) -> None:
    numbers = HEADING.findall((PROTOCOL / f"{page}.md").read_text(encoding="utf-8"))

    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(("text", "wrong"), [
    ("(store.md 9.4)", []),
    ("store.md 3.4, 6.6: both", []),
    ("broker.md 7.1 to 7.3, 9.5 and more", []),
    ("broker.md 2.2 steps 1 to 13, 2.5, remoting.md 4.1", []),
    ("see [store.md](store.md) or docs/protocol/store.md", []),
    ("store.md 9.44", ["store.md 9.44"]),
    ("store.md 3.4, 6.66", ["store.md 3.4, 6.66"]),
    ("broker.md 7.1 to 7.33", ["broker.md 7.1 to 7.33"]),
    ("broker.md 6.1 step 5, 77", ["broker.md 6.1 step 5, 77"]),
    ("design.md 3", ["design.md 3"]),
    ("as in store.md, section 3", ["store.md"]),
    ("what store.md\n# 6.4 says", ["store.md"]),
])
def test_a_citation_of_another_form_or_of_nothing_is_found(text: str, wrong: list[str]) -> None:
    assert [citation for _, citation in troubles(text)] == wrong


# -- rules (`held H2`) -----------------------------------------------------------------------------

RULE = re.compile(r"^(?:#   | {0,4})([A-Z]{1,2}\d+)  +(?=\S)", re.M)        # where it is stated
BESIDE = re.compile(r"(?:,| to| and| or|;|, and)? ")         # between two rules of one module
UNCITED = ("CHANGELOG.md", "docs/roadmap.md", "docs/invariants.md")      # the last is made of heads


def homes(root: Path) -> dict[str, list[Path]]:
    """The files that state a rule of that id, without their ends."""
    found: dict[str, list[Path]] = {}
    for path in sorted((root / "mqcore").rglob("*.p[xy]*")):
        if path.suffix in (".pxd", ".pyx", ".py") and path.stem != "_native":
            for rule in RULE.findall(path.read_text(encoding="utf-8")):
                found.setdefault(rule, []).append(path.with_suffix(""))
    return found


HOMES = homes(ROOT)
RULES = re.compile(rf"(?<![\w./'%`=+*<>-])(?<![^\"]\")(?:{'|'.join(HOMES)})"
                   r"(?![\w/'%`=+*(]|\"(?!\"\")|\.\w|-\w| ==| =)")


def cited_bare(text: str, path: Path) -> list[tuple[int, str]]:
    """(line, rule) of each citation without its module, outside of the file that states it."""
    found = []
    module, end = "", 0                  # of the citation before
    for match in RULES.finditer(text):
        if path.with_suffix("") in HOMES[match[0]]:
            continue
        modules = {home.name for home in HOMES[match[0]]}
        before = re.sub(r"[\s#]+$", " ", text[max(0, match.start() - 80):match.start()])
        named = re.search(r"\b(\w+)(?:\.p[xy][dx]`?,)? $", before)
        if named and named[1] in modules:
            module = named[1]
        elif not (module in modules and BESIDE.fullmatch(
                re.sub(r"[\s#]+", " ", text[end:match.start()]))):
            module = ""
            found.append((text.count("\n", 0, match.start()) + 1, match[0]))
        end = match.end()
    return found


def test_rules_are_cited_with_their_module() -> None:
    """In the code and the documents; tests say in their names what they prove."""
    wrong = []
    for path in sources():
        name = path.relative_to(ROOT)
        is_code = name.parts[0] in ("mqcore", "workers") and path.suffix != ".c"
        if is_code or (path.suffix == ".md" and str(name) not in UNCITED):
            wrong += [f"{name}:{line}: {rule}" for line, rule in cited_bare(
                path.read_text(encoding="utf-8"), path)]

    assert len(HOMES) > 200
    assert wrong == []


@pytest.mark.parametrize(("text", "bare"), [
    ("# as held H2 says (ring R1, R3 to R5)", []),
    ("# as (H2) says", ["H2"]),
    ("# held H2, R1", ["R1"]),
    ("# held H2, ring R1 and\n#   R3", []),
    ('invariant("R1", at < end)', []),
    ("see `mqcore/shm/ring.pxd`, R1", []),
    ("# held R1", ["R1"]),
])
def test_a_bare_rule_is_found(text: str, bare: list[str]) -> None:
    assert [rule for _, rule in cited_bare(text, ROOT / "mqcore/elsewhere.pxd")] == bare
    assert cited_bare("# R1 and R2", ROOT / "mqcore/shm/ring.pyx") == []
