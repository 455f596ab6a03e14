"""What the benchmark does inside vLLM's worker: clocks around steps, and copies left out."""

from __future__ import annotations

from typing import Any


class BenchWorker:
    """Methods for LLM.collective_rpc (vLLM's worker_extension_cls)."""

    def bench_steps(self) -> float:
        """ms on the device's clock, of the steps since the last call together; 0 without a GPU."""
        import torch

        if not torch.cuda.is_available():
            return 0.0
        events = _clock().events
        torch.cuda.synchronize()
        taken, events[:] = list(events), []
        return float(sum(begin.elapsed_time(end) for begin, end in taken))

    def bench_reinit(self, seed: int) -> None:
        """vLLM's random weights are so small that the output hardly depends on KV: larger ones."""
        import torch

        model = self.model_runner.model  # type: ignore[attr-defined]
        device = next(model.parameters()).device
        generator = torch.Generator(device=device).manual_seed(seed)
        with torch.no_grad():
            for name, weights in model.named_parameters():
                if weights.dim() < 2:
                    weights.fill_(1.0)
                else:
                    spread = 1.0 if "embed_tokens" in name else weights.shape[-1] ** -0.5
                    weights.normal_(0, spread * (2 if "qkv" in name else 1), generator=generator)

    def bench_noop(self, on: bool) -> None:
        _clock().noop = on


class _Clock:
    """Stands around the connector's two hooks."""

    def __init__(self, connector: Any) -> None:
        self.events: list[tuple[Any, Any]] = []
        self.noop = False
        self._began: Any = None
        self._load, self._save = connector.start_load_kv, connector.wait_for_save
        mover = connector.hands._records.mover
        self._inject = mover.inject
        mover.inject = self.inject
        connector.start_load_kv, connector.wait_for_save = self.load, self.save

    def inject(self, *args: Any) -> None:
        if not self.noop:
            self._inject(*args)

    def load(self, *args: Any, **kwargs: Any) -> None:
        self._began = _now()
        self._load(*args, **kwargs)

    def save(self, *args: Any, **kwargs: Any) -> None:
        self._save(*args, **kwargs)
        if self._began is not None:
            self.events.append((self._began, _now()))
        self._began = None


def _now() -> Any:
    import torch

    if not torch.cuda.is_available():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


_clocks: list[_Clock] = []


def _clock() -> _Clock:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    if not _clocks:
        _clocks.append(_Clock(get_kv_transfer_group()))
    return _clocks[0]
