"""What was recorded, in a form that tests compare."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PROGRAM = Path(__file__).with_name("program.py")
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


@dataclass(frozen=True)
class Span:
    """One span: ids are hexadecimal, `parent` is "" for a root."""

    name: str
    kind: str
    trace_id: str
    id: str
    parent: str
    attributes: dict[str, Any]
    status: str
    message: str | None
    links: tuple[str, ...] = ()

    @classmethod
    def of(cls, span: ReadableSpan) -> Span:
        """From a span of this process."""
        return cls.read(json.loads(span.to_json()))

    @classmethod
    def read(cls, wire: dict[str, Any]) -> Span:
        """From the SDK's own JSON."""
        return cls(
            wire["name"],
            wire["kind"].removeprefix("SpanKind."),
            wire["context"]["trace_id"].removeprefix("0x"),
            wire["context"]["span_id"].removeprefix("0x"),
            (wire["parent_id"] or "").removeprefix("0x"),
            wire["attributes"],
            wire["status"]["status_code"],
            wire["status"].get("description"),
            tuple(link["context"]["span_id"].removeprefix("0x") for link in wire["links"]),
        )


def read_spans(path: Path) -> list[Span]:
    """The spans that `program.py` wrote."""
    if not path.exists():
        return []
    return [Span.read(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Recorded:
    """What this process recorded."""

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def spans(self) -> list[Span]:
        """The finished spans, in the order of their ends."""
        return [Span.of(span) for span in self.exporter.get_finished_spans()]

    def take(self) -> list[Span]:
        """The same, and forget them."""
        spans = self.spans
        self.exporter.clear()
        return spans

    def series(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """A histogram's time series: labels and count."""
        data = self.reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point.count)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]
