"""A Celery app over the transport: workers in processes of their own."""
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import kombu
import pytest

from mqcore.client.roles.blocking import LoopThread
from mqcore.testing import Broker, broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
RESULT_S = 60
STOP_S = 30
APP = '''
import os
import time

from celery import Celery

import mqcore.contrib.kombu         # makes rocketmq:// known

app = Celery("shop", broker=f"rocketmq://{os.environ['NAMESRV']}", backend="rpc://")
app.conf.update(worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task
def add(x, y):
    return x + y


@app.task
def when():
    return time.time()


@app.task(bind=True, max_retries=2)
def second_time(self):
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task(acks_late=True)
def long(folder):
    begun = os.path.join(folder, str(os.getppid()))
    open(begun, "w").close()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.05)
    return os.getppid()
'''


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory, running) -> Path:
    made = tmp_path_factory.mktemp("app")
    (made / "shop.py").write_text(APP)
    return made


@pytest.fixture(scope="module")
def app(folder, running):
    os.environ["NAMESRV"] = running.namesrv
    spec = spec_from_file_location("shop", folder / "shop.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del os.environ["NAMESRV"]
    module.app.backend.result_consumer.stop()
    module.app.pool.force_close_all()
    kombu.pools.reset()
    module.app.close()
    loop = LoopThread.shared().loop
    wait_until(lambda: not asyncio.all_tasks(loop), "every client of the app has ended")


@contextmanager
def worker(folder: Path, running: Broker) -> Iterator[subprocess.Popen]:
    log = folder / f"worker-{time.monotonic_ns()}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "shop", "worker", "--concurrency=2",
             "--loglevel=INFO"], cwd=folder, stdout=out, stderr=out,
            env={**os.environ, "NAMESRV": running.namesrv,
                 "PYTHONPATH": str(Path(__file__).parents[2])})
        try:
            yield process
            process.terminate()
            assert process.wait(STOP_S) in (0, -9), log.read_text()
        except BaseException:
            print(log.read_text())
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_tasks_results_retries_and_countdowns(app, folder, running):
    with worker(folder, running):
        results = [app.add.delay(number, 1) for number in range(20)]
        assert [result.get(timeout=RESULT_S) for result in results] == list(range(1, 21))
        began = time.time()
        ended = app.when.apply_async(countdown=2).get(timeout=RESULT_S)
        assert 2.0 <= ended - began < 20
        assert app.second_time.delay().get(timeout=RESULT_S) == 1


def test_a_task_of_a_killed_worker_is_done_by_another_one(app, folder, running, tmp_path):
    def begun() -> set[str]:
        return {path.name for path in tmp_path.iterdir()} - {"go"}

    with worker(folder, running) as first:
        result = app.long.delay(str(tmp_path))
        wait_until(begun, "the first worker has it")
        children = subprocess.run(["pgrep", "-P", str(first.pid)], capture_output=True, text=True,
                                  check=False).stdout.split()
        first.kill()
        for child in map(int, children):
            try:
                os.kill(child, 9)
            except ProcessLookupError:
                continue                # it went with its parent
        first.wait(STOP_S)
    with worker(folder, running) as second:
        wait_until(lambda: str(second.pid) in begun(), "the second worker has it")
        (tmp_path / "go").touch()
        assert result.get(timeout=RESULT_S) == second.pid
