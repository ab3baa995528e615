"""Who follows README line by line sees what it says: the first commands, then the program."""
from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.imports import ROOT
from tests.support.mqcore_process import MQCORE, mqcore_up

NAME_SERVER = "127.0.0.1:9876"
TRY = re.compile(r"^ +(?:try it +)?mqcore (message (?:send|consume) .+)$", re.M)
PROGRAM = re.compile(r"```python\n(.*?)```\n\n(.+)", re.S)


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_the_first_screen_and_then_the_program_print_what_readme_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    send, consume = TRY.findall(readme.partition("make demo\nmqcore demo")[0])
    found = PROGRAM.search(readme)
    assert found is not None
    program, told = found[1], found[2].partition("\n")[0]
    with mqcore_up(tmp_path, {"processes.serving_count": 1}) as broker:
        for line, said in ((send, {"status": "SEND_OK"}), (consume, {"body": "hello"})):
            answer = json.loads(printed(*MQCORE, *shlex.split(line), "-n", broker.namesrv_addr))
            assert answer | said == answer
        assert NAME_SERVER in program
        lines = printed(sys.executable, "-c", program.replace(NAME_SERVER, broker.namesrv_addr))
    assert re.findall(r"`([^`]+)`", told) == lines.splitlines()
