"""A collector of OpenTelemetry metrics."""

from __future__ import annotations

import http.server
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class Collector:
    """Decodes requests with the protocol's own message classes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.latest: dict[str, Metric] = {}
        self.resource: dict[str, str] = {}
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportMetricsServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                collector.take(self.path, request)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Prints nothing; the terminal belongs to the test."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def take(self, path: str, request: ExportMetricsServiceRequest) -> None:
        self.asked.append(path)
        for resource in request.resource_metrics:
            self.resource = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.latest = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
