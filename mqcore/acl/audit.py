"""
Audit lines: who asked for what, from where, and whether it was allowed; for refusals and for what
changes a broker or name server; behind such a change, from which value to which. No secret,
signature or message is ever part of one.
"""
from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping

from mqcore.wire.codes import RequestCode

TEXT_MAX = 200                     # characters of a peer's text in a line
CHANGES_MAX = 16                   # values in a line
ABSENT, NO_ACCOUNT = "nothing", "nobody"
_log = logging.getLogger("mqcore.audit")


def name_of(code: int) -> str:
    """A request's name in RocketMQ's words."""
    try:
        return RequestCode(code).name
    except ValueError:
        return f"code {code}"


def _shown(text: str) -> str:
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text[:TEXT_MAX])


def _value(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    return ABSENT if value is None else _shown(str(value))


class Audit:
    """
    Writes lines to the logger mqcore.audit, at most so many a second; the others are counted, and
    told of with the next second's first line.

    form: "text", "json" or "off"; clock: seconds, steady.
    """

    def __init__(
        self, form: str, lines_per_second: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._form = form
        self._limit = lines_per_second
        self._clock = clock
        self._second = 0
        self._lines = 0
        self._more = 0

    def line(self, *, account: str, remote: str, code: int, what: str, refused: str) -> None:
        """refused: why; '': it was allowed. what: the topic, group or file that it is about."""
        if self._form == "off" or not self._has_room():
            return
        fields = {"account": _shown(account), "from": remote, "request": name_of(code),
                  "what": _shown(what), "result": "refused" if refused else "allowed",
                  "why": _shown(refused)}
        if self._form == "json":
            _log.info("%s", json.dumps({"audit": fields}, ensure_ascii=False))
            return
        _log.info("audit: %s %s of %s from %s%s%s", fields["result"], fields["request"],
                  fields["account"] or NO_ACCOUNT, remote, f" on {fields['what']}" if what else "",
                  f": {fields['why']}" if refused else "")

    def changed(
        self, *, account: str, remote: str, code: int, what: str, before: Mapping[str, object],
        after: Mapping[str, object],
    ) -> None:
        """
        The values that a request changed, by name. Equal values are left out; there is no line
        where all are equal.
        """
        names = [name for name in dict.fromkeys((*before, *after))
                 if before.get(name) != after.get(name)]
        if not names or self._form == "off" or not self._has_room():
            return
        shown = [(_shown(name), _value(before, name), _value(after, name))
                 for name in names[:CHANGES_MAX]]
        more = len(names) - len(shown)
        if self._form == "json":
            _log.info("%s", json.dumps({"audit": {
                "account": _shown(account), "from": remote, "request": name_of(code),
                "what": _shown(what), "result": "changed", "more": more,
                "changes": [{"name": name, "before": old, "after": new}
                            for name, old, new in shown]}}, ensure_ascii=False))
            return
        _log.info("audit: %s of %s from %s%s changed %s%s", name_of(code),
                  _shown(account) or NO_ACCOUNT, remote, f" on {_shown(what)}" if what else "",
                  ", ".join(f"{name} from {old} to {new}" for name, old, new in shown),
                  f", and {more} more" if more else "")

    def missed(self, count: int) -> None:
        """So many more were not kept by who should have told of them."""
        self._more += count

    def _has_room(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            if self._more:
                _log.warning("audit: %d lines more are not shown", self._more)
            self._second, self._lines, self._more = second, 0, 0
        self._lines += 1
        if self._lines > self._limit:
            self._more += 1
            return False
        return True
