"""Requests to the http process of a broker, one connection each, and what it answers."""
from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

DEADLINE_S = 60.0
OPEN = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5"}


def get(port: int, path: str, headers: Mapping[str, str] | None = None,
        method: str = "GET") -> tuple[HTTPResponse, str]:
    """The answer, and its body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def raw(port: int, request: bytes) -> bytes:
    """The server's answer to bytes, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def checks(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status, and name -> detail of what failed."""
    answer, body = get(port, path)
    found = json.loads(body)
    failed = {check["name"]: check["detail"] for check in found["checks"] if not check["ok"]}
    assert found["ok"] == (not failed)
    return answer.status, failed


def families(port: int, path: str = "/metrics", *, newer: bool = False) -> list[Metric]:
    """A scrape as Prometheus's own library reads it."""
    answer, body = get(port, path, OPEN if newer else None)
    assert answer.status == 200, body
    return list((open_metrics if newer else plain)(body))


def values(found: Iterable[Metric], name: str, **labels: str) -> list[float]:
    """Of the samples of this name that have these labels."""
    return [sample.value for family in found for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()]
