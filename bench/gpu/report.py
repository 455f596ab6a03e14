"""The table and the plot of a result of bench_ops.py; can be run on one to draw it again."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from results import Result

NAMES = {
    "copy": "copy",
    "ours_off": "ours, no rotation",
    "ours": "ours",
    "lmcache": "LMCache",
    "flashinfer": "FlashInfer",
    "torch": "torch",
}
COLOURS = dict(
    zip(NAMES, ("#999999", "#7ab8e6", "#0b62a4", "#d1662a", "#5a9e3f", "#a04a9c"), strict=True)
)
TITLES = {
    "inject": "inject, bf16 to bf16",
    "inject_i8": "inject, int8 to bf16",
    "inject_f8": "inject, bf16 to fp8",
    "capture": "capture, bf16",
    "topk": "topk, f16 rows",
    "host_to_device": "Host to device, pinned memory",
}
NOTES = """\
Times are in microseconds on the device, medians of CUDA events in both orders of the rows; a call
finds nothing of its data in the L2 cache. `copy` is one device-to-device copy that reads and writes
as many bytes together (for the host's memory: one large copy over the link), and percentages are
its time over the row's. Rows were compared with float64 arithmetic before they were timed.

- **ours, no rotation**: what gathering and scattering alone cost.
- **LMCache**: its fused kernels, one launch that rotates and one that scatters for every 16 facts;
  facts lie in slots of equal length.
- **FlashInfer**: rotation and append of one layer after the other, in a CUDA graph. The facts were
  gathered before, which is not counted.
- **torch**: `cat`, rotation in bf16 and `index_put_` for every layer. Launching from Python is not
  in its time here; the JSON has it as `called_us`.
"""


def shape_keys(row: Result) -> list[str]:
    keys = ("model", "tokens", "facts", "searches", "count", "dims", "k")
    return [key for key in keys if key in row]


def cell(row: Result | None) -> str:
    if row is None:
        return "-"
    if not row["ok"]:
        return "wrong"
    text = f"{row['us']:.1f}"
    if row["row"] != "copy" and "copy_fraction" in row:
        text += f" ({100 * row['copy_fraction']:.0f} %)"
    return text


def table(rows: list[Result]) -> Iterator[str]:
    """Lines of Markdown for one op."""
    keys = shape_keys(rows[0])
    names = [name for name in NAMES if any(row["row"] == name for row in rows)]
    against = any("best_peer_ratio" in row for row in rows)
    head = [
        *keys,
        "MB",
        *(NAMES[name] for name in names),
        *(["faster than the best peer"] * against),
    ]
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(keys) + "|--:" * (len(head) - len(keys)) + "|"
    for shape, group in groupby(rows, key=lambda row: [row[key] for key in keys]):
        found = {row["row"]: row for row in group}
        moved = next(iter(found.values()))["bytes"] / 1e6
        cells = [*map(str, shape), f"{moved:.0f}", *(cell(found.get(name)) for name in names)]
        if against:
            ratio = found.get("ours", {}).get("best_peer_ratio")
            cells.append("-" if ratio is None else f"{ratio:.2f}x")
        yield "| " + " | ".join(cells) + " |"


def markdown(document: dict[str, Any], plot: str) -> str:
    lines = [
        f"# GPU ops on {document['card']}, {document['date']}",
        "",
        f"Driver {document['driver']}, torch {document['torch']}, plug-in {document['plugin']}, "
        f"commit {document['commit'][:12]}; made by `bench/gpu/run.sh`.",
        "",
        NOTES,
        f"![Time against bytes]({plot})",
    ]
    for op, rows in groupby(document["rows"], key=lambda row: str(row["op"])):
        lines += ["", f"## {TITLES[op]}", "", *table(list(rows))]
    wrong = [row for row in document["rows"] if not row["ok"]]
    if wrong:
        lines += ["", "## Wrong rows", ""]
        for row in wrong:
            shape = ", ".join(f"{key} {row[key]}" for key in shape_keys(row))
            lines.append(f"- {row['op']}, {NAMES[row['row']]} ({shape}): {row['error']}")
    return "\n".join(lines) + "\n"


def draw(document: dict[str, Any], path: Path) -> None:
    """inject, a panel for each model: a line through one number of facts, and dots for all."""
    rows = [row for row in document["rows"] if row["op"] == "inject" and row["ok"]]
    models = list(dict.fromkeys(row["model"] for row in rows))
    columns = max(1, len(models))
    facts = Counter(row["facts"] for row in rows)
    usual = max(facts, key=lambda count: (facts[count], count), default=0)
    figure, panels = pyplot.subplots(
        1, columns, figsize=(1 + 4 * columns, 4.4), sharey=True, squeeze=False
    )
    for panel, model in zip(panels[0], models, strict=False):
        for name in NAMES:
            found = [row for row in rows if row["model"] == model and row["row"] == name]
            points = sorted((row["bytes"] / 1e6, row["us"]) for row in found)
            line = sorted((r["bytes"] / 1e6, r["us"]) for r in found if r["facts"] == usual)
            style = {"color": COLOURS[name], "linestyle": "--" if name == "copy" else "-"}
            if line:
                panel.plot(*zip(*line, strict=True), label=NAMES[name], **style)
                panel.scatter(*zip(*points, strict=True), s=7, color=COLOURS[name])
        panel.set(title=model, xscale="log", yscale="log", xlabel="MB read and written")
        panel.grid(which="both", alpha=0.2)
    panels[0][0].set_ylabel("microseconds")
    title = f"inject on {document['card']}, {document['date']}; lines: {usual} facts"
    figure.suptitle(title, fontsize="medium")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(NAMES), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def write_report(path: Path) -> None:
    """Writes <name>.md and <name>.svg beside <name>.json."""
    document = json.loads(path.read_text())
    plot = path.with_suffix(".svg")
    draw(document, plot)
    path.with_suffix(".md").write_text(markdown(document, plot.name))


if __name__ == "__main__":
    write_report(Path(sys.argv[1]))
