"""
Writes the table of request codes in HACKING.md, of the functions that answer them: `make settings`.

usage: python -m docs.requests
"""
from __future__ import annotations

import re
from pathlib import Path

from mqcore.broker.requests.table import HANDLERS
from mqcore.wire.codes import RequestCode

ROOT = Path(__file__).parents[1]
DOCUMENT = Path("HACKING.md")
NAME_SERVER = Path("mqcore/namesrv/handlers.py")
NATIVE = frozenset({                   # if they are regular (mqcore/net/serving/handler.pyx)
    RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.END_TRANSACTION,
})
POP = frozenset({                      # of the process that has its state (net/grpc/remoting.pyx)
    RequestCode.GET_POP_STATE, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE,
    RequestCode.PEEK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO, RequestCode.BATCH_ACK_MESSAGE,
})
OWN_FROM = 32_001                      # codes that RocketMQ lacks
HEAD = "| code | name | who, where | code | name | who, where |\n|---|---|---|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|[^\n]*\n)*")


def rows() -> list[str]:
    """Code, name and answerer of each request."""
    name_server = (ROOT / NAME_SERVER).read_text(encoding="utf-8")
    found = {RequestCode[name]: "N" for name in re.findall(r"code\.(\w+): self\._", name_server)}
    for number, handler in HANDLERS.items():
        code = RequestCode(number)
        room = handler.__module__.rpartition(".")[2]
        found[code] = (f"B{', native' if code in NATIVE else ''} `{room}`"
                       f"{', not in RocketMQ' if is_own(code) else ''}")
    found |= {code: f"B, native{', not in RocketMQ' if is_own(code) else ''}" for code in POP}
    return [f"| {code.value} | {code.name} | {found[code]} " for code in sorted(found)]


def is_own(code: RequestCode) -> bool:
    return OWN_FROM <= code < RequestCode.POP_MESSAGE


def document(text: str) -> str:
    """HACKING.md with its table of codes: the lower half of the codes on the left."""
    all_rows = rows()
    half = (len(all_rows) + 1) // 2
    right = [*all_rows[half:], *["| | | "] * (2 * half - len(all_rows))]
    made = HEAD + "".join(f"{left}{other}|\n"
                          for left, other in zip(all_rows[:half], right, strict=True))
    return TABLE.sub(lambda _: made, text, count=1)


def main() -> None:
    path = ROOT / DOCUMENT
    path.write_text(document(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
