"""Reads a page as a browser would, and says what must not be in it."""
from __future__ import annotations

from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
DRAWN = {"path", "rect", "line", "circle"}
LOADING = ("src", "href", "action", "formaction", "hx-get", "hx-post", "hx-sse:connect")
ELEMENTS = {"b", "i", "u"}                    # of hostile names: no page of ours has them


class Page(HTMLParser):
    """faults: what a browser would run or fetch from elsewhere, and elements that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.fields: dict[str, str] = {}
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> does not close" for tag in self._open]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "script" and not given.get("src", "").startswith("/static/"):
            self.faults.append("a script in the page")
        if tag in ("style", "iframe", "object", "embed", "base") or tag in ELEMENTS:
            self.faults.append(f"<{tag}>")
        if tag == "img" and not given.get("src", "").startswith("/static/"):
            self.faults.append(f"an image from {given.get('src')}")
        self.faults += [f"{tag} has {name}" for name in given
                        if name.startswith(("on", "hx-on")) or name == "style"]
        for name in LOADING:
            if name in given and not (given[name].startswith("/") and not given[name].startswith(
                    "//")):
                self.faults += [] if given[name].startswith("#") else [f"{name}={given[name]}"]
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "input":
            self.fields[given.get("name", "")] = given.get("value", "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> within {self._open[-3:]}")
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
