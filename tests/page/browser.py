"""Debian's Chromium for tests of the page, and axe-core, which looks for barriers."""
from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.ci import unavailable

if TYPE_CHECKING:
    from playwright.sync_api import Browser

AXE = "axe-core@4.14.1"
FETCH_S = 120
# Rules about how a page is used with assistance, as laws on accessibility name them.
RULES = {"runOnly": {"type": "tag", "values": [
    "wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}}


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; skips where it, or what drives it, is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="`make tools` installs it")
    program = shutil.which("chromium")
    if program is None:
        unavailable("not installed: chromium (Debian's package of that name)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def axe(folder: Path) -> str:
    """The script, of npm's package."""
    npm = shutil.which("npm")
    if npm is None:
        unavailable("not installed: npm")
    done = subprocess.run([npm, "pack", AXE, "--silent"], cwd=folder, capture_output=True,
                          text=True, check=False, timeout=FETCH_S)
    if done.returncode:
        unavailable(f"npm pack {AXE}: {done.stderr[-200:]}")
    (package,) = folder.glob("axe-core-*.tgz")
    with tarfile.open(package) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def barriers(page: Any, script: str, *, only_colours: bool = False) -> list[str]:
    """The findings of axe on a page: rule, and the element."""
    page.evaluate(script)
    rules = {"runOnly": ["color-contrast"]} if only_colours else RULES
    found = page.evaluate("rules => axe.run(document, {resultTypes: ['violations'], ...rules})",
                          rules)
    return [f"{one['id']}: {node['html'][:160]}" for one in found["violations"]
            for node in one["nodes"]]
