"""
HACKING.md's recipes, followed to the letter in a copy of the project: a request that the
coordinator answers, a native figure in `mqcore status`, a setting, a metric, a method of Admin. The
edited files are counted.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docs import settings as documents
from mqcore.broker.settings.load import defaults

ROOT = Path(__file__).parents[1]
HACKING = (ROOT / "HACKING.md").read_text(encoding="utf-8")
FILES_MAX = 10                     # edited by hand for all five
COPIED = ("mqcore", "workers", "config", "docs", "tests/broker", "tests/__init__.py", "HACKING.md")


class Edit(NamedTuple):
    """What somebody writes: `text` behind the first place where `file` has `behind`."""

    recipe: str                    # the beginning of its heading in HACKING.md
    file: str
    behind: str
    text: str


REQUEST, FIGURE, SETTING = "A request that", "A figure in", "A setting"
METRIC, METHOD = "A metric", "A method of"
EDITS = (
    Edit(REQUEST, "mqcore/wire/codes.py", "LITE_PULL_MESSAGE = 361\n",
         "    GET_TOPIC_COUNT = 32999            # not in RocketMQ\n"),
    Edit(REQUEST, "mqcore/broker/requests/topic.py", "from mqcore.wire.fastjson import ObjectKey\n",
         '''

@answers(RequestCode.GET_TOPIC_COUNT)
def topic_count(core: Core, request: Request) -> Answer:
    """GET_TOPIC_COUNT: how many topics there are."""
    key = core.settings.broker.topic_count_key
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({key: len(core.topics.all())}))
'''),
    Edit(FIGURE, "mqcore/figures.py", '"TLS handshakes that failed, or were not done in time",\n'
         '           "tls.failed_handshakes"),\n',
         '    Figure(16, "empty_bodies", SERVING, "1", "requests without a body",\n'
         '           "serving.empty_bodies"),\n'),
    Edit(FIGURE, "mqcore/net/remoting/frames.pyx", "mqcore.layout cimport ",
         "FIGURE_EMPTY_BODIES, "),
    Edit(FIGURE, "mqcore/net/remoting/frames.pyx",
         "request.body_length = length - FRAME_HEADER_WORD - header_length\n",
         "    if request.body_length == 0:\n"
         "        r.transport.slot.figures[FIGURE_EMPTY_BODIES] += 1\n"),
    Edit(SETTING, "mqcore/broker/settings/model.py",
         "delay_offsets_persist_interval_ms: Annotated[int, Meta(ge=1, le=600_000)] = 10_000\n",
         '    topic_count_key: Name = "topicCount"\n'),
    Edit(SETTING, "config/broker.toml", "\ndelay_offsets_persist_interval_ms = 10000\n",
         "# What the answer to GET_TOPIC_COUNT calls the count.\ntopic_count_key =\n"),
    Edit(METRIC, "mqcore/http/metrics.py", "METRICS = (\n",
         '    Metric("mqcore_topics_with_bytes", "gauge", (), "Topics that have records.",\n'
         "           lambda look: [((), sum(map(bool, look.bytes_in().values())))]),\n"),
    Edit(METHOD, "mqcore/client/admin/topics.py",
         "for name, value in table.items()), key=lambda topic: topic.name))\n", '''
    @limited
    async def topic_count(self, broker: str) -> int:
        """How many topics a broker has."""
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_TOPIC_COUNT)
        return document(answer, target.address).number("topicCount")
'''),
    Edit(METHOD, "mqcore/client/admin/blocking.py",
         "topic_configs: Final = _waits(AsyncAdmin.topic_configs)\n",
         "    topic_count: Final = _waits(AsyncAdmin.topic_count)\n"),
    Edit(METHOD, "docs/client/admin.md", "`topic_stats`, `topic_configs`, ", "`topic_count`, "),
)
# Facts that are written once.
ONCE = {"32999": "mqcore/wire/codes.py", "topic_count_key: ": "mqcore/broker/settings/model.py",
        "Figure(16": "mqcore/figures.py", "What the answer to": "config/broker.toml"}
LOOK = '''
import json, sys
from pathlib import Path
from mqcore.admin.status import describe
from mqcore.client.admin import Admin
from mqcore.testing import MemoryBroker
from mqcore import figures, layout
from mqcore.participants import SERVING
from mqcore.shm.segment import Segment
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode
from tests.broker.fakes import make_bench, settings_in

bench = make_bench(settings_in(Path("store")))
segment = Segment.create(sys.argv[1], kind="named", run_id=9, serving_count=1, segment_size=65536,
                         message_bytes_max=4096, topics=64, groups=64, subscriptions=64, queues=64)
try:
    (row,) = (one for one in figures.FIGURES if one.name == "empty_bodies")
    segment.put_figure(SERVING.slot, row.id, 7)
    status = describe(sys.argv[1])
finally:
    segment.unlink()
with MemoryBroker() as broker, Admin(broker.namesrv) as admin:
    by_method, all_topics = admin.topic_count(broker.broker), admin.topic_configs(broker.broker)
print(json.dumps({
    "by_method": by_method, "topics": len(all_topics),
    "file": figures.__file__, "count": len(bench.broker.core.topics.all()),
    "answer": fastjson.loads(bench.ask(RequestCode.GET_TOPIC_COUNT).body),
    "shown": status["serving"]["empty_bodies"], "constants": figures.declarations()}))
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with the edits made, and then what HACKING.md says that is run."""
    folder = tmp_path_factory.mktemp("recipes")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *COPIED], cwd=ROOT,
        check=True, capture_output=True, text=True).stdout.split("\0")
    modules = [str(path.relative_to(ROOT)) for path in (ROOT / "mqcore").rglob("*.so")]
    for name in [*filter(None, listed), *modules]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name in modules:
            target.symlink_to(ROOT / name)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target, follow_symlinks=False)
    for edit in EDITS:
        path = folder / edit.file
        before, found, after = path.read_text(encoding="utf-8").partition(edit.behind)
        assert found, f"{edit.file} has no more: {edit.behind}"
        path.write_text(before + found + edit.text + after, encoding="utf-8")
    run(folder, "-m", "docs.settings")
    run(folder, "-m", "docs.requests")
    run(folder, "-m", "docs.metrics")
    return folder


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(folder)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def seen(copy: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(copy, "-c", LOOK, f"/mqcore-test-recipes-{os.getpid()}"))
    assert found["file"].startswith(str(copy))
    return found


def test_the_request_is_answered_and_reads_the_setting(seen: dict[str, Any]) -> None:
    assert seen["count"] > 0
    assert seen["answer"] == {"topicCount": seen["count"]}


def test_the_metric_is_in_the_table_of_metrics(copy: Path) -> None:
    assert ("\n| `mqcore_topics_with_bytes` | gauge | | Topics that have records. |\n"
            in (copy / "docs/metrics.md").read_text(encoding="utf-8"))


def test_the_method_asks_a_broker_by_the_request(seen: dict[str, Any]) -> None:
    assert 0 < seen["by_method"] == seen["topics"]


def test_the_request_is_in_the_table_of_codes(copy: Path) -> None:
    assert ("| 32999 | GET_TOPIC_COUNT | B `topic`, not in RocketMQ |"
            in (copy / "HACKING.md").read_text(encoding="utf-8"))


def test_the_figure_has_its_native_constant_and_is_in_the_status(seen: dict[str, Any]) -> None:
    assert "    FIGURE_EMPTY_BODIES = 16\n" in seen["constants"]
    assert seen["shown"] == 7


def test_the_setting_has_its_default_and_its_row(copy: Path) -> None:
    assert '\ntopic_count_key = "topicCount"\n' in (copy / "config/broker.toml").read_text()
    assert ('\n| `broker.topic_count_key` | `"topicCount"` | What the answer to GET_TOPIC_COUNT '
            "calls the count. | - |\n") in (copy / "docs/configuration.md").read_text()


def test_no_more_files_are_edited_than_was_promised() -> None:
    assert len({edit.file for edit in EDITS}) <= FILES_MAX


def test_hacking_names_every_file_that_is_edited() -> None:
    for edit in EDITS:
        recipe = re.search(rf"^### {edit.recipe}.*?(?=^##)", HACKING, re.M | re.S)
        assert recipe is not None
        assert edit.file.endswith(".pyx") or any(
            name in recipe[0] for name in (f"`{edit.file}`", f"`{Path(edit.file).parent}/")
        ), edit.file


def test_each_fact_is_written_once() -> None:
    for fact, file in ONCE.items():
        assert {edit.file for edit in EDITS if fact in edit.text} == {file}


# -- `make settings` -------------------------------------------------------------------------------


def test_what_the_model_says_of_settings_is_written_where_people_read_it() -> None:
    values = defaults()
    file, page = ((ROOT / name).read_text(encoding="utf-8")
                  for name in (documents.SHIPPED, documents.DOCUMENT))
    made, comments = documents.shipped(file, values)

    assert made == file
    assert documents.document(page, values, comments) == page


@pytest.mark.parametrize(("text", "said"), [
    ("[log]\n# How much.\nlevel =\n", "lacks log.file: write a comment and `file =` there, "
                                       "behind level"),
    ("[log]\nlevels = 1\n", "log.levels is no setting"),
    ("level = 1\n", ".level is no setting")])
def test_a_key_that_nobody_explained_or_that_is_none_is_named(text: str, said: str) -> None:
    with pytest.raises(documents.NotExplained) as found:
        documents.shipped(text, {"log": {"level": "info", "file": ""}})
    assert said in str(found.value)
