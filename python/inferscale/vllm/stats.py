"""The connector's counters in vLLM's log line and in its Prometheus metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

# name: what it counts. A name "refused_<reason>" is exported as one metric with a label.
COUNTERS = {
    "injected_requests": "requests whose prompt was taken from stored KV, in part",
    "injected_tokens": "prompt tokens taken from stored KV",
    "captured_records": "records captured and given to the store",
    "whole_salts": "requests whose whole prompt had to be salted",
}
REFUSED = "refused_"


@dataclass
class InferScaleStats(KVConnectorStats):
    """`data`: counts since the last time."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        self.data = {}

    def add(self, name: str, count: int = 1) -> None:
        self.data[name] = self.data.get(name, 0) + count

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, count in other.data.items():
            self.add(name, count)
        return self

    def reduce(self) -> dict[str, int | float]:
        return {f"inferscale {name}": count for name, count in sorted(self.data.items())}

    def is_empty(self) -> bool:
        return not self.data


class InferScaleMetrics(KVConnectorPromMetrics):
    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._plain = {
            name: self._counter_cls(
                name=f"vllm:inferscale_{name}",
                documentation=f"InferScale: {what}.",
                labelnames=self._labelnames,
            )
            for name, what in COUNTERS.items()
        }
        self._refused = self._counter_cls(
            name="vllm:inferscale_refused",
            documentation="InferScale: plans, spans and captures refused, by reason.",
            labelnames=[*self._labelnames, "reason"],
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        for name, count in transfer_stats_data.items():
            if name in self._plain:
                self._plain[name].labels(*labels).inc(count)
            elif name.startswith(REFUSED):
                self._refused.labels(*labels, name.removeprefix(REFUSED)).inc(count)
