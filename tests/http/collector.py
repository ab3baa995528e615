"""A collector of OpenTelemetry: takes OTLP as protobuf over HTTP, and keeps what it decodes."""
from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS: dict[str, tuple[type[Message], type[Message]]] = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


class Collector:
    """
    address: host:port; status: of its answers; open: cleared, it answers nothing; requests: those
    that it took, the newest last.
    """

    def __init__(self) -> None:
        self.status = 200
        self.open = threading.Event()
        self.open.set()
        self.asked = 0
        self.requests: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked += 1
                collector.open.wait()
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.headers["Content-Type"] == "application/x-protobuf"
                asked, answer = KINDS[self.path]
                if collector.status == 200:
                    request = asked()
                    request.ParseFromString(body)
                    collector.requests.append(request)
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(answer().SerializeToString())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def metrics(self) -> dict[str, Any]:
        """Of the newest request, by name."""
        if not self.requests:
            return {}
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def spans(self) -> list[Any]:
        return [span for request in self.requests for resource in request.resource_spans
                for scope in resource.scope_spans for span in scope.spans]


def attributes(one: Any) -> dict[str, Any]:
    """Of a point, a span or a resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
            for pair in one.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.open.set()
        collector.server.shutdown()
        collector.server.server_close()
        thread.join()
