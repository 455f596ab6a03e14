"""How long a call keeps the device busy."""

import statistics
import time
from collections.abc import Callable

import torch

Call = Callable[[int], None]  # with the number of a variant


class GpuClock:
    """CUDA events. The device sleeps before each call until the host has queued all of it."""

    def __init__(self) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cycles = 20_000_000
        for _ in range(20):  # until the clock has come up from idle
            torch.cuda._sleep(cycles)
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        self._cycles_per_us = cycles / (begin.elapsed_time(end) * 1e3)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def queued(self, call: Call, variants: int, repeats: int) -> float:
        """Microseconds on the device, the median."""
        host_us = self._warm_up(call, variants)
        sleep = int((1.5 * host_us + 40) * self._cycles_per_us)
        pairs = []
        for i in range(repeats):
            torch.cuda._sleep(sleep)
            pairs.append(self._timed(call, i % variants))
        torch.cuda.synchronize()
        return statistics.median(float(begin.elapsed_time(end)) * 1e3 for begin, end in pairs)

    def called(self, call: Call, variants: int, repeats: int) -> float:
        """The same on an idle device: what the host needs for launching is in it."""
        times: list[float] = []
        for i in range(repeats):
            torch.cuda.synchronize()
            begin, end = self._timed(call, i % variants)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(times)

    def _timed(self, call: Call, variant: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call(variant)
        end.record()
        return begin, end

    def _warm_up(self, call: Call, variants: int) -> float:
        for i in range(3):
            call(i % variants)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i in range(3):
            call(i % variants)
        host_us = (time.perf_counter() - begin) / 3 * 1e6
        torch.cuda.synchronize()
        return host_us


class HostClock:
    """For dry runs; its numbers mean nothing."""

    def synchronize(self) -> None:
        pass

    def queued(self, call: Call, variants: int, repeats: int) -> float:
        return self.called(call, variants, repeats)

    def called(self, call: Call, variants: int, repeats: int) -> float:
        begin = time.perf_counter()
        call(0)
        return (time.perf_counter() - begin) * 1e6
