"""A real Prometheus that scrapes a broker each second, as a test asks it."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.ci import unavailable
from tests.support.mqcore_process import die_with_parent
from tests.support.stock import free_port


def program(name: str) -> str:
    """Of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        unavailable(f"needs {name}, of Debian's package prometheus")
    return found


@dataclass
class Prometheus:
    """port: where it answers."""

    port: int

    def get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an answer; none while it does not answer."""
        found = self.get("query", query=expr)
        return list(found["result"]) if found else []

    def has_data(self, expr: str) -> bool:
        return bool(self.query(expr))


@contextmanager
def scraping(folder: Path, port: int, rules: Sequence[Path] = ()) -> Iterator[Prometheus]:
    """port: of the broker's http process."""
    command, own = program("prometheus"), free_port()
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "mqcore", "static_configs": [
            {"targets": [f"127.0.0.1:{port}"]}]}]}))
    process = subprocess.Popen(
        [command, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
         f"--web.listen-address=127.0.0.1:{own}"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, preexec_fn=die_with_parent,
        env={**os.environ, "GOMAXPROCS": "1"})
    try:
        yield Prometheus(own)
    finally:
        process.kill()
        process.wait()
