"""What the machine cannot give is one sentence at the start, with the number that is there."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mqcore_process import MQCORE, start


@pytest.mark.parametrize(("settings", "within", "said"), [
    (["store.flush=transient-pool", "store.pool_bytes=1099511627776"], [],
     "store.pool_bytes = 1099511627776: expected at most "),
    ([], ["prlimit", "--as=1073741824"], "RLIMIT_AS allows 1024 MiB of address space"),
    (["store.segment_size_bytes=8388608"], ["prlimit", "--as=300000000"], "RLIMIT_AS"),
], ids=["pool", "segments", "shared memory"])
def test_a_limit_of_the_machine_is_one_sentence(
    settings: list[str], within: list[str], said: str, tmp_path: Path,
) -> None:
    words = [word for one in (f"store.path={tmp_path}/store", *settings) for word in ("--set", one)]
    one = start(["up", *words], tmp_path, [*within, *MQCORE])

    assert one.process.wait(60) == 1, one.tail()
    (line,) = one.tail().splitlines()
    assert said in line
