"""Writes the tables and plots of a run of bench_vllm.py and gateway.py beside its JSON.

python3 report.py FILE.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ARMS = ["question alone", "prefix-cache hit", "injected", "injected, no copies", "full prefill"]


def latency_table(name: str, sizes: dict[str, Any]) -> list[str]:
    lines = [f"## Time to the first token, {name.removeprefix('latency ')} CUDA graphs", ""]
    lines += [f"| memory tokens | {' | '.join(ARMS)} | full / injected | injected / hit |"]
    lines += ["|---|" + "---|" * (len(ARMS) + 2)]
    for size, arms in sizes.items():
        cells = [
            f"{arms[a]['median']:.2f} [{arms[a]['p10']:.2f}, {arms[a]['p90']:.2f}]" for a in ARMS
        ]
        median = {a: arms[a]["median"] for a in ARMS}
        cells.append(f"{median['full prefill'] / median['injected']:.1f} x")
        cells.append(f"{median['injected'] / median['prefix-cache hit']:.3f}")
        lines.append(f"| {int(size):,} | {' | '.join(cells)} |")
    lines += ["", "ms in the client, median [10 %, 90 %]. The step on the GPU's clock, ms:", ""]
    lines += [f"| memory tokens | {' | '.join(ARMS)} | full / injected | injected - no copies |"]
    lines += ["|---|" + "---|" * (len(ARMS) + 2)]
    for size, arms in sizes.items():
        step = {a: arms[a]["step_ms"] for a in ARMS}
        if not step["injected"]:
            continue
        cells = [f"{step[a]:.2f}" for a in ARMS]
        cells.append(f"{step['full prefill'] / step['injected']:.1f} x")
        cells.append(f"{step['injected'] - step['injected, no copies']:+.2f}")
        lines.append(f"| {int(size):,} | {' | '.join(cells)} |")
    return [*lines, ""]


def throughput_table(name: str, arms: dict[str, Any]) -> list[str]:
    lines = [f"## Requests per second, {name.removeprefix('throughput ')} CUDA graphs", ""]
    lines += ["| | requests/s | against text | all rounds |", "|---|---|---|---|"]
    text = arms["text"]["requests_per_s"]
    for arm, told in arms.items():
        if arm != "counters":
            rate = told["requests_per_s"]
            lines.append(f"| {arm} | {rate:.1f} | {rate / text:.2f} x | {told['all']} |")
    return [*lines, ""]


def sweep_table(name: str, arms: dict[str, Any]) -> list[str]:
    lines = [f"## Requests that come at random, {name.removeprefix('sweep ')} CUDA graphs", ""]
    lines += ["| requests/s | | answered/s | ms to the first token | p99 |"]
    lines += ["|---|---|---|---|---|"]
    for rate in arms["injected"]:
        for arm, rates in arms.items():
            if told := rates.get(rate):
                lines.append(
                    f"| {float(rate):g} | {arm} | {told['answered_per_s']:.1f} "
                    f"| {told['median']:.1f} | {told['p99']:.1f} |"
                )
    return [*lines, ""]


def gateway_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["## From the question to the first token through the gateway", ""]
    lines += ["| facts | as text, ms | as KV, ms | p99 | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        text, kv = row["text"], row["kv"]
        lines.append(
            f"| {row['facts']} | {text['median']:.1f} [{text['p10']:.1f}, {text['p90']:.1f}] "
            f"| {kv['median']:.1f} [{kv['p10']:.1f}, {kv['p90']:.1f}] | {kv['p99']:.1f} "
            f"| {text['median'] / kv['median']:.1f} x |"
        )
    return [*lines, ""]


def plot(results: dict[str, Any], to: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    sweep: dict[str, Any] = next((v for k, v in results.items() if k.startswith("sweep ")), {})
    figure, axes = pyplot.subplots(1, 3 if sweep else 2, figsize=(15 if sweep else 10, 4))
    if rows := results.get("gateway"):
        facts = [row["facts"] for row in rows]
        axes[0].plot(facts, [row["text"]["median"] for row in rows], "o-", label="text")
        axes[0].plot(facts, [row["kv"]["median"] for row in rows], "o-", label="KV")
        axes[0].set(xlabel="facts", ylabel="ms to the first token", title="Through the gateway")
    else:
        sizes: dict[str, Any] = next(
            (v for k, v in results.items() if k.startswith("latency ")), {}
        )
        counts = [int(size) for size in sizes]
        for arm in ARMS:
            axes[0].plot(counts, [sizes[str(n)][arm]["median"] for n in counts], "o-", label=arm)
        axes[0].set(xlabel="memory tokens", ylabel="ms to the first token", title="In the engine")
    axes[0].set_ylim(bottom=0)
    axes[0].legend()
    arms: dict[str, Any] = next((v for k, v in results.items() if k.startswith("throughput ")), {})
    names = [arm for arm in arms if arm != "counters"]
    axes[1].barh(names, [arms[arm]["requests_per_s"] for arm in names])
    axes[1].set(xlabel="requests per second")
    for arm, rates in sweep.items():
        points = [(float(rate), told["median"]) for rate, told in rates.items()]
        axes[2].plot(*zip(*points, strict=True), "o-", label=arm)
    if sweep:
        axes[2].set(xlabel="requests that come per second", ylabel="ms to the first token")
        axes[2].set_yscale("log")
        axes[2].legend()
    figure.tight_layout()
    figure.savefig(to)


def main() -> int:
    path = Path(sys.argv[1])
    results = json.loads(path.read_text())
    lines = [f"# InferScale in vLLM {results['versions']['vllm']}, {path.stem}", ""]
    for name, value in results.items():
        if name.startswith("latency "):
            lines += latency_table(name, value)
        elif name.startswith("throughput "):
            lines += throughput_table(name, value)
        elif name.startswith("sweep "):
            lines += sweep_table(name, value)
    if "gateway" in results:
        lines += gateway_table(results["gateway"])
    for name in ("host", "decode", "store", "check", "gateway_concurrent"):
        if name in results:
            lines += [f"## {name}", "", "```json", json.dumps(results[name], indent=1), "```", ""]
    path.with_suffix(".md").write_text("\n".join(lines))
    plot(results, path.with_suffix(".svg"))
    print(path.with_suffix(".md"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
