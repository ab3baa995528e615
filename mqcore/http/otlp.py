"""
The table of metrics as OTLP, pushed to a collector over HTTP (`pip install mqcore[otlp]`).

The SDK of OpenTelemetry encodes and sends; it is imported when a broker is told to push, and not
before. A push is read from shared memory in the loop's thread, and sent from a thread of its own:
a collector that hangs keeps no probe waiting. Headers and certificates are those of the SDK's
environment variables (OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE ...).
"""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import mqcore
from mqcore.http.look import Look
from mqcore.http.metrics import METRICS, Metric
from mqcore.http.text import HISTOGRAM, TOTAL, Distribution

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as otel

UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1", "_latency": "ms"}
SEND_S = 10.0                          # for a push, with what the SDK tries again

log = logging.getLogger("mqcore.http")


class Push:
    """
    Pushes one look at a time. Raises ModuleNotFoundError where the extra is not installed.

    url: of the collector; since_ns: when the counters of this run began.
    """

    def __init__(self, url: str, since_ns: int) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        # -- the SDK's own lines: each failure of each try, with its traceback
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter: Any = OTLPMetricExporter(endpoint=url, timeout=SEND_S)
        self._url = url
        self._since_ns = since_ns
        self._sending: threading.Thread | None = None
        self._failing = False

    @property
    def busy(self) -> bool:
        """Whether the last push is still being sent."""
        return self._sending is not None and self._sending.is_alive()

    def send(self, look: Look) -> None:
        """Send one look, unless the last one is still on its way."""
        if self.busy:
            return
        data = metrics_data(look, self._since_ns)
        self._sending = threading.Thread(target=self._send, args=[data], daemon=True)
        self._sending.start()

    def _send(self, data: otel.MetricsData) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        failed = self._exporter.export(data, timeout_millis=SEND_S * 1000) \
            is not MetricExportResult.SUCCESS
        if failed and not self._failing:
            log.warning("metrics cannot be pushed to %s: the collector does not take them",
                        self._url)
        if self._failing and not failed:
            log.info("metrics are pushed to %s again", self._url)
        self._failing = failed

    def stop(self) -> None:
        self._exporter.shutdown(timeout_millis=0)


def metrics_data(look: Look, since_ns: int) -> otel.MetricsData:
    """The samples of a scrape; a metric without one is left out."""
    from opentelemetry.sdk.metrics import export as otel
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    broker = look.settings.broker
    common = {"cluster": broker.cluster, "node_type": "broker", "node_id": broker.name}
    resource = Resource({"service.name": "mqcore", "service.version": mqcore.__version__,
                         "service.namespace": broker.cluster, "service.instance.id": broker.name})
    found = [one for metric in METRICS if (one := _metric(metric, look, common, since_ns))]
    return otel.MetricsData([otel.ResourceMetrics(
        resource, [otel.ScopeMetrics(InstrumentationScope("mqcore", mqcore.__version__), found,
                                     "")], "")])


def _metric(
    metric: Metric, look: Look, common: dict[str, str], since_ns: int
) -> otel.Metric | None:
    from opentelemetry.sdk.metrics import export as otel

    cumulative = otel.AggregationTemporality.CUMULATIVE
    now_ns = time.time_ns()

    def labels(texts: tuple[str, ...]) -> dict[str, str]:
        return {**common, **{name: _whole(text) for name, text in zip(
            metric.labels, texts, strict=True)}}

    data: otel.Sum | otel.Gauge | otel.Histogram
    if metric.kind == HISTOGRAM:
        assert metric.times is not None
        data = otel.Histogram([
            otel.HistogramDataPoint(labels(texts), since_ns, now_ns, one.count, one.sum,
                                    list(_in_each(one)), list(one.bounds), None, None)  # type: ignore[arg-type]
            for texts, one in metric.times(look)], cumulative)
    else:
        points = [otel.NumberDataPoint(labels(texts), since_ns, now_ns, value)
                  for texts, value in metric.values(look)]
        data = otel.Sum(points, cumulative, is_monotonic=True) if metric.kind == "counter" \
            else otel.Gauge(points)
    if not data.data_points:
        return None
    name = metric.name.removesuffix(TOTAL)
    return otel.Metric(name, metric.help, _unit(name), data)


def _in_each(found: Distribution) -> Iterator[int]:
    """How many lie in each bucket; the last one has no bound."""
    before = 0
    for below in (*found.below, found.count):
        yield max(0, below - before)
        before = max(before, below)


def _unit(name: str) -> str:
    ends: Iterable[str] = (unit for end, unit in UNITS.items() if name.endswith(end))
    return next(iter(ends), "1")


def _whole(text: str) -> str:
    """Protobuf takes no half of a surrogate pair, which a name may hold."""
    return text.encode(errors="replace").decode()
