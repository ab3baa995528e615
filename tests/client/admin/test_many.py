"""Many clients one after the other, and many threads with one client."""
from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from mqcore.client.admin import Admin
from mqcore.client.roles.blocking import LoopThread
from tests.client.admin.conftest import CLUSTER_NAME, queue
from tests.support.waiting import wait_until

ROUNDS = 100


def left_over():
    """Tasks of the client's thread, threads and open files of this process."""
    async def tasks():
        return len(asyncio.all_tasks())

    return (LoopThread.shared().call(tasks()), threading.active_count(),
            len(os.listdir("/proc/self/fd")))


def test_a_hundred_clients_leave_nothing_behind(admin, place):
    def use():
        with Admin(place.namesrv_addr) as made:
            assert [cluster.name for cluster in made.clusters()] == [CLUSTER_NAME]
            assert made.broker_status(place.broker_addr).address == place.broker_addr

    use()
    before = left_over()
    for _ in range(ROUNDS):
        use()
    wait_until(lambda: all(now <= was for now, was in zip(left_over(), before, strict=True)),
               f"no more than {before} tasks, threads and files")


def test_many_threads_use_one_client(admin, topic):
    def use(number):
        group = f"Thread-{number}"
        admin.set_offset(group, queue(topic), number)
        return admin.committed(group, queue(topic)), len(admin.topic_stats(topic).queues)

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(use, range(64))) == [(number, 2) for number in range(64)]
