"""
HACKING.md's recipes, followed to the letter in a copy of the project: a request that the
coordinator answers, a native figure in `mqcore status`, a setting, a metric, a method of Admin, a
command, a worker. The edited files are counted.
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
FILES_MAX = 8                      # edited by hand for the first five
COMMAND_FILES_MAX, WORKER_FILES_MAX = 3, 8
COPIED = ("mqcore", "workers", "config", "docs", "tests/broker", "tests/__init__.py", "HACKING.md",
          "tests/test_architecture.py", "tests/imports.py")


class Edit(NamedTuple):
    """A text that a developer writes: `text` behind the first `behind` of a file, or a new file."""

    recipe: str                    # the beginning of its heading in HACKING.md
    file: str
    behind: str
    text: str


REQUEST, FIGURE, SETTING = "A request that", "A figure in", "A setting"
METRIC, METHOD = "A metric", "A method of"
COMMAND, WORKER = "A command", "A worker"
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
         "                            key=lambda topic: topic.name))\n", '''
    @limited
    async def topic_count(self, broker: str) -> int:
        """How many topics a broker has."""
        target = await self._address(broker)
        answer = await self._ask(target.address, RequestCode.GET_TOPIC_COUNT)
        return document(answer, target.address).number("topicCount")
'''),
    Edit(COMMAND, "mqcore/admin/nouns/topic.py", "items=\"entries\", name=\"offset\")\n", '''

@topic_group.command("count")
@click.argument("broker")
@reads()
async def count_command(admin: AsyncAdmin, broker: str) -> View:
    """How many topics a broker has."""
    count = await admin.topic_count(broker)
    return View({"topics": count}, [Text([f"{count} topics"])])
'''),
    Edit(COMMAND, "mqcore/admin/cli.py", "Topics: ls, show, create, edit, rm, clean, queue",
         ", count"),
    Edit(COMMAND, "docs/command.md", "-b BROKER` | entries of one queue |\n",
         "| `topic count BROKER` | how many topics a broker has |\n"),
    Edit(WORKER, "mqcore/participants.py", "BESIDE, stop=7, section=\"http\")\n",
         "METER = _row(\"meter\", optional=True)\n"),
    Edit(WORKER, "workers/meter.py", "", '''"""
The meter process: counts its turns.

Reads     nothing
Owns      its count
Wakes     no process
Restarts  from 0
"""
from __future__ import annotations

from mqcore.workers.metering.meter import Meter
from mqcore.workers.process import loop
from mqcore.workers.process.inherited import Inherited


def wanted(inherited: Inherited) -> bool:
    return not inherited.settings.is_slave


def live(inherited: Inherited, _index: int) -> None:
    """The process, from fork to end."""
    segment = inherited.segment
    loop.run(lambda settings: Meter(segment), inherited.settings, segment)
'''),
    Edit(WORKER, "mqcore/workers/metering/__init__.py", "",
         '"""A worker that counts its turns."""\n'),
    Edit(WORKER, "mqcore/workers/metering/meter.py", "",
         '''"""Work of the meter: it counts its turns."""
from __future__ import annotations

import select
import time

from mqcore.broker.settings.model import Settings
from mqcore.participants import METER
from mqcore.shm.segment import Segment
from mqcore.workers.process.loop import Worker


class Meter(Worker):
    name = "meter"
    slot = METER.slot

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.turns = 0

    def start(self) -> None:
        self.turns = 0

    def work(self, turn_ms: int) -> None:
        self.turns += 1
        end = time.monotonic() + turn_ms / 1000
        while time.monotonic() < end and not self._segment.stop_requested(self.slot):
            select.select([], [], [], 0.01)

    def reconfigure(self, settings: Settings) -> None:
        pass

    def stop(self) -> None:
        pass
'''),
    Edit(WORKER, "tests/test_architecture.py", '    "scheduling": {"process"},\n',
         '    "metering": {"process"},\n'),
    Edit(WORKER, "mqcore/layout.pxd", "SHM_LAYOUT_VERSION = ", "1"),
    Edit(WORKER, "docs/architecture.md", "| `SHM_LAYOUT_VERSION` | ", "1"),
    Edit(WORKER, "docs/architecture.md", "over their port | Python, asyncio |\n",
         "| meter | `workers/meter.py` | its count | nothing | Python |\n"),
    Edit(WORKER, "docs/operations.md", "and the history of charts are gone |\n",
         "| `mqcore: meter` | counts its turns | restarted, from 0 |\n"),
)
# Facts that are written once.
ONCE = {"32999": "mqcore/wire/codes.py", "topic_count_key: ": "mqcore/broker/settings/model.py",
        "Figure(16": "mqcore/figures.py", "What the answer to": "config/broker.toml"}
LOOK = '''
import json, sys
from pathlib import Path
from click.testing import CliRunner
from mqcore.admin.cli import main
from mqcore.admin.status import describe
from mqcore.client.admin import Admin
from mqcore.testing import MemoryBroker
from mqcore import figures, layout
from mqcore.participants import METER, PARTICIPANTS, SCHEDULER, SERVING, declarations
from mqcore.shm.segment import Segment
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode
from mqcore.processes import meter as life
from mqcore.workers.metering.meter import Meter
from tests.broker.fakes import make_bench, settings_in
from tests.test_architecture import WORKER_ROOMS

bench = make_bench(settings_in(Path("store")))
segment = Segment.create(sys.argv[1], kind="named", run_id=9, serving_count=1, segment_size=65536,
                         message_bytes_max=4096, topics=64, groups=64, subscriptions=64, queues=64)
try:
    (row,) = (one for one in figures.FIGURES if one.name == "empty_bodies")
    segment.put_figure(SERVING.slot, row.id, 7)
    status = describe(sys.argv[1])
    meter = Meter(segment)
    meter.slot = SCHEDULER.slot        # that of the meter is compiled with its row
    segment.request_stop(meter.slot)
    meter.work(60_000)
finally:
    segment.unlink()
with MemoryBroker() as broker, Admin(broker.namesrv) as admin:
    by_method, all_topics = admin.topic_count(broker.broker), admin.topic_configs(broker.broker)
    words = ["topic", "count", broker.broker, "-n", broker.namesrv]
    printed = [CliRunner().invoke(main, [*words, *more]).stdout for more in ([], ["--json"])]
print(json.dumps({
    "printed": printed, "turns": meter.turns, "declarations": declarations(),
    "life": [name for name in ("live", "wanted") if callable(getattr(life, name))],
    "rooms": list(WORKER_ROOMS), "meter_is_last": PARTICIPANTS[-1] is METER,
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
    (folder / "mqcore/processes").symlink_to(folder / "workers")       # the installed name
    for edit in EDITS:
        path = folder / edit.file
        path.parent.mkdir(exist_ok=True)
        before, found, after = ("", "", "") if not edit.behind else path.read_text(
            encoding="utf-8").partition(edit.behind)
        assert bool(found) == bool(edit.behind), f"{edit.file} has no more: {edit.behind}"
        path.write_text(before + found + edit.text + after, encoding="utf-8")
    run(folder, "-m", "docs.settings")
    run(folder, "-m", "docs.requests")
    run(folder, "-m", "docs.admin")
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


def test_the_command_prints_lines_and_a_document(seen: dict[str, Any]) -> None:
    count = seen["topics"]

    assert seen["printed"][0] == f"{count} topics\n"
    assert json.loads(seen["printed"][1]) == {"topics": count, "unreachable": []}


def test_the_worker_has_a_row_a_native_slot_and_ends_when_asked(seen: dict[str, Any]) -> None:
    assert seen["meter_is_last"]
    assert "    SLOT_METER = 27\n" in seen["declarations"]
    assert seen["turns"] == 1


def test_the_worker_has_a_file_with_its_life_and_a_room(seen: dict[str, Any], copy: Path) -> None:
    assert seen["life"] == ["live", "wanted"]
    assert (copy / "mqcore/workers/metering").name in seen["rooms"]


@pytest.mark.parametrize(("recipes", "most"), [
    ((REQUEST, FIGURE, SETTING, METRIC, METHOD), FILES_MAX), ((COMMAND,), COMMAND_FILES_MAX),
    ((WORKER,), WORKER_FILES_MAX)], ids=["five", "command", "worker"])
def test_no_more_files_are_edited_than_was_promised(recipes: tuple[str, ...], most: int) -> None:
    assert len({edit.file for edit in EDITS if edit.recipe in recipes}) <= most


def test_hacking_names_every_file_that_is_edited() -> None:
    for edit in EDITS:
        recipe = re.search(rf"^### {edit.recipe}.*?(?=^##)", HACKING, re.M | re.S)
        assert recipe is not None
        assert edit.file.endswith(".pyx") or any(
            name in recipe[0] for name in (f"`{edit.file}`", f"`{Path(edit.file).parent}/",
                                           f"`{Path(edit.file).parents[1]}/<room>/")
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
