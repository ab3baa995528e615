"""The Django example of docs/client/frameworks.md as a project: views, a rollback, the command."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.testing import broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/client/frameworks.md").read_text(encoding="utf-8")
FILE = re.compile(r"^`(shop/[\w/]+\.py)`:.*?\n```py\n(.*?)^```$", re.M | re.S)
STOP_S = 30
SETTINGS = '''
import os

SECRET_KEY = "of a test"
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db",
                         "OPTIONS": {"timeout": 30}}}
ROCKETMQ = os.environ["NAMESRV"]
'''
URLS = '''
from django.urls import path
from shop.views import order

urlpatterns = [path("orders/<str:name>", order)]
'''
REQUESTS = '''
import django

django.setup()

from django.test import Client
from shop.models import Order

client = Client(raise_request_exception=False)
print(client.get("/orders/book").status_code, client.get("/orders/pen?fail=1").status_code,
      client.get("/orders/ink").status_code, Order.objects.count())
'''
STATES = '''
import django

django.setup()

from shop.models import Order

print(*Order.objects.order_by("pk").values_list("name", "state"))
'''


def test_the_example_runs(tmp_path: Path) -> None:
    files = dict(FILE.findall(PAGE))
    assert set(files) == {"shop/messages.py", "shop/views.py", "shop/models.py",
                          "shop/management/commands/consume.py"}
    for name, text in {**files, "settings.py": SETTINGS, "urls.py": URLS,
                       "shop/migrations/__init__.py": "", "shop/__init__.py": "",
                       "shop/management/__init__.py": "",
                       "shop/management/commands/__init__.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with broker() as running:
        env = {**os.environ, "NAMESRV": running.namesrv, "DJANGO_SETTINGS_MODULE": "settings",
               "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

        def python(*arguments: str) -> str:
            return subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=env, check=True,
                                  capture_output=True, text=True, timeout=60).stdout

        python("-m", "django", "makemigrations", "shop")
        python("-m", "django", "migrate")
        consumer = subprocess.Popen([sys.executable, "-m", "django", "consume"], cwd=tmp_path,
                                    env=env)
        try:
            assert python("-c", REQUESTS).split() == ["200", "500", "200", "2"]
            wait_until(lambda: python("-c", STATES).count("billed") == 2, "both orders are billed")
            assert "pen" not in python("-c", STATES)
        finally:
            consumer.terminate()
            assert consumer.wait(STOP_S) == 0
