"""Times the GPU ops beside a copy of the same bytes and beside the peers, after checking each.

Run it through bench/gpu/run.sh. Every row is compared with float64 arithmetic before it is timed,
on a poisoned destination of which every other byte must survive; a row that is wrong is reported
as such and gets no time. `bytes` are those read plus those written. Times are medians of CUDA
events around single calls, walking through more than four times the L2 cache, in both orders of
the rows.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from cases import LLAMA_8B, SEARCHES, Case, Model, Search, transfer_cases
from clock import GpuClock, HostClock
from cuda_plugin import Ops as CudaOps
from groups import GROUPS, Setup
from measure import Clock, measure
from plain_ops import PlainOps
from report import write_report
from results import Result, summary

from memory import Memory

TOY_CASE = Case(Model("toy", 2, 2, 64, 10000.0), tokens=48, facts=5)
TOY_SEARCH = Search(searches=3, count=500, dims=64, k=10)


def make_setup(options: argparse.Namespace) -> Setup:
    if options.dry:
        memory = Memory([TOY_CASE], "cpu", 0, options.seed)
        fact = Case(TOY_CASE.model, tokens=7, facts=1)
        ops = CudaOps(options.plugin) if options.plugin else PlainOps()
        return Setup(ops, memory, [TOY_CASE], (TOY_SEARCH,), TOY_CASE.facts, fact, {})
    cases = transfer_cases(options.quick)
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    memory = Memory(cases, "cuda", l2_bytes, options.seed)
    peers = {name: options.peers / f"libpeer_{name}.so" for name in ("lmcache", "flashinfer")}
    found = {name: path for name, path in peers.items() if path.is_file()}
    fact = Case(LLAMA_8B, tokens=32, facts=1)
    return Setup(CudaOps(options.plugin), memory, cases, SEARCHES, 50, fact, found)


def output_of(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def circumstances(setup: Setup, options: argparse.Namespace) -> dict[str, Any]:
    driver = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    commit = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return {
        "card": "none" if options.dry else torch.cuda.get_device_name(0),
        "driver": "none" if options.dry else output_of(driver),
        "torch": torch.__version__,
        "plugin": setup.ops.build,
        "peers": sorted(setup.peers),
        "commit": os.environ.get("INFERSCALE_COMMIT") or output_of(commit),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": options.seed,
    }


def run(setup: Setup, clock: Clock, options: argparse.Namespace) -> tuple[list[Result], bool]:
    """All groups, or those until the time is up or the device is lost; then False."""
    begin, results = time.monotonic(), list[Result]()
    for op in options.ops:
        for group in GROUPS[op](setup):
            if options.limit_s and time.monotonic() - begin > options.limit_s:
                print(f"{options.limit_s} s are over: the rest is left out", flush=True)
                return results, False
            try:
                results += measure(group, clock)
            except RuntimeError as error:
                print(f"{op}: {str(error).splitlines()[0]}: giving up", flush=True)
                return results, False
            print(summary(results[-len(group.rows) :]), flush=True)
        print(f"{op}: {time.monotonic() - begin:.0f} s so far", flush=True)
    return results, True


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", type=Path, help="libinferscale_cuda.so")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--peers", type=Path, default=Path(), help="folder of libpeer_*.so")
    parser.add_argument("--ops", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--quick", action="store_true", help="one model, a few sizes")
    parser.add_argument(
        "--dry", action="store_true", help="a toy on the CPU, with no plug-in or an emulated one"
    )
    parser.add_argument("--limit-s", type=float, default=0, help="begin nothing after this time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if not options.dry and options.plugin is None:
        parser.error("--plugin is needed, or --dry")
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    stream = contextlib.nullcontext() if options.dry else torch.cuda.stream(torch.cuda.Stream())
    with stream:
        setup = make_setup(options)
        document = circumstances(setup, options)
        print(json.dumps(document), flush=True)
        clock = HostClock() if options.dry else GpuClock()
        document["rows"], complete = run(setup, clock, options)
    card = re.sub(r"^nvidia-", "", re.sub(r"\W+", "-", document["card"].lower()))
    name = f"{document['date']}-{card}-ops"
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.json"
    rows = ",\n".join(json.dumps(row) for row in document.pop("rows"))
    path.write_text(json.dumps(document)[:-1] + f', "rows": [\n{rows}\n]}}\n')
    write_report(path)
    print(f"{path} and its table and plot are written")
    wrong = [row for row in json.loads(path.read_text())["rows"] if not row["ok"]]
    if wrong:
        print(f"{len(wrong)} rows are wrong")
    return 1 if wrong or not complete else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
