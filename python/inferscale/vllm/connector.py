"""InferScaleConnector: vLLM's door to stored KV. See docs/vllm.md.

vLLM makes one in the engine's core (the scheduler half, the brain) and one in each worker (the
hands). The module is also imported by processes that have neither, so it is light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

if TYPE_CHECKING:
    from inferscale.vllm.messages import Greeting, Orders, Report
    from inferscale.vllm.scheduler import Scheduler
    from inferscale.vllm.stats import InferScaleMetrics, InferScaleStats
    from inferscale.vllm.worker import Worker


class InferScaleConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(
        self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None
    ) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._brain: Scheduler | None = None
        self._hands: Worker | None = None
        if role == KVConnectorRole.SCHEDULER:
            from inferscale.vllm.scheduler import Scheduler

            self._brain = Scheduler(vllm_config, kv_cache_config)
        else:
            from inferscale.vllm.worker import Worker

            self._hands = Worker(vllm_config, kv_cache_config)

    @property
    def brain(self) -> Scheduler:
        assert self._brain is not None
        return self._brain

    @property
    def hands(self) -> Worker:
        assert self._hands is not None
        return self._hands

    def shutdown(self) -> None:
        for half in (self._brain, self._hands):
            if half is not None:
                half.shutdown()

    # ---- the class alone ----

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return False  # nothing is done in layers

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> InferScaleStats:
        from inferscale.vllm.stats import InferScaleStats

        return InferScaleStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any, **kwargs: Any) -> InferScaleMetrics:
        from inferscale.vllm.stats import InferScaleMetrics

        return InferScaleMetrics(*args, **kwargs)

    # ---- the brain ----

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # stored KV is a cache

    def on_new_request(self, request: Any) -> None:
        self.brain.on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self.brain.matched_tokens(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self.brain.follows(request):
            self.brain.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return self.brain.build(scheduler_output)

    def set_xfer_handshake_metadata(self, metadata: dict[int, Any]) -> None:
        self.brain.greet(metadata.values())

    def update_connector_output(self, connector_output: Any) -> None:
        report: Report | None = connector_output.kv_connector_worker_meta
        if report is not None:
            self.brain.hear(report)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return False, self.brain.finished(request)

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return False, self.brain.finished(request)

    # ---- the hands ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self.hands.register(kv_caches)

    def get_handshake_metadata(self) -> Greeting | None:
        # With pipeline parallelism, which is refused, the base class takes none.
        alone = self._vllm_config.parallel_config.pipeline_parallel_size == 1
        return self.hands.greeting() if alone else None

    def handle_preemptions(self, *args: Any, **kwargs: Any) -> None:
        pass

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if (orders := self._orders()) is not None:
            self.hands.load(orders)

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        pass

    def wait_for_save(self) -> None:
        if (orders := self._orders()) is not None:
            self.hands.save(orders)

    def build_connector_worker_meta(self) -> Report | None:
        return self.hands.report(self._orders())

    def _orders(self) -> Orders | None:
        orders: Orders | None = self._connector_metadata
        return orders

    # ---- both ----

    def get_kv_connector_stats(self) -> InferScaleStats | None:
        return self._brain.stats() if self._brain is not None else None
