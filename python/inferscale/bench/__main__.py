"""The command line; docs/quality.md has examples."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from inferscale.bench import arms, audit, datasets, judge, report, runs, server, worker

DEFAULT_ARMS = ["text", "kv", "shuffled", "none"]


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _count(text: str) -> int:
    return _counts(text)[0]


def _counts(text: str) -> list[int]:
    counts = [int(word) for word in text.split(",")]
    if min(counts) < 1:
        raise ValueError
    return counts


def _add_run_options(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    add("path", type=Path, help="the data set, which does not come with this")
    add("--out", type=Path, required=True, help="folder of the run; goes on in it")
    add(
        "--arms",
        nargs="+",
        default=DEFAULT_ARMS,
        help="text, kv[:setting=value,...], shuffled, none, all, mem0, article "
        "(default: %(default)s)",
    )
    add("--facts", type=_counts, default=[20, 50], help="20,50: facts in a prompt")
    add(
        "--part",
        choices=["all", "choose", "final"],
        default="all",
        help="half of the questions is for choosing, the other for the final table",
    )
    add("--conversations", type=int, default=0, help="the first N; 0: all")
    add("--per-conversation", type=int, default=0, help="N questions; 0: all")
    add("--categories", nargs="+", default=[], help="of questions; none: all")
    add("--max-tokens", type=int, default=32, help="of an answer")
    add("--seed", type=int, default=0)
    add("--bin", help="the inferscale command (or INFERSCALE_BIN)")
    add("--model", help="GGUF of the model (or INFERSCALE_MODEL)")
    add("--embed-model", help="GGUF for search (or INFERSCALE_EMBED_MODEL)")
    add("--threads", type=int, default=0, help="0: one per core")
    add("--jobs", type=_count, default=1, help="processes that encode and answer side by side")
    add("--context", type=int, default=0, help="tokens; 0: the model's, at most 8192")
    add("--server", help="base URL of an OpenAI-compatible server, which answers text arms as well")
    add("--server-model", default="", help="its model's name; its key comes from OPENAI_API_KEY")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m inferscale.bench",
        description="Answers of a model with its memory as KV, beside the same memory as text.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, loader in datasets.LOADERS.items():
        _add_run_options(verbs.add_parser(name, help=(loader.__doc__ or "").splitlines()[0]))
    verb = verbs.add_parser("report", help="Tables, JSON and a plot from a run")
    verb.add_argument("run", type=Path, help="folder of the run")
    verb.add_argument("--to", type=Path, help="STEM of STEM.md, .json, .svg (default: RUN/report)")
    verb.add_argument("--margin", type=float, default=1.0, help="points of F1 and of rank-1")
    verb.add_argument("--seed", type=int, default=0, help="of the resampling")
    verb.add_argument(
        "--audit", type=Path, help="JSON list of wrong answers; their questions are left out"
    )
    verb = verbs.add_parser("judge", help="Has a model say which answers of a run are right")
    verb.add_argument("run", type=Path, help="folder of the run")
    verb.add_argument("--prompt", choices=list(judge.PROMPTS), default="strict")
    verb.add_argument("--server", required=True, help="base URL of an OpenAI-compatible server")
    verb.add_argument("--server-model", required=True, help="the judge")
    return parser


def _server(args: argparse.Namespace) -> server.Server | None:
    if not args.server:
        return None
    url = args.server.rstrip("/")
    return server.Server(url, args.server_model, os.environ.get("OPENAI_API_KEY", ""))


def _run(args: argparse.Namespace) -> None:
    data = datasets.LOADERS[args.verb](args.path, args.seed)
    data = datasets.select(
        data,
        part=args.part,
        conversations=args.conversations,
        per_conversation=args.per_conversation,
        categories=args.categories,
        seed=args.seed,
    )
    if not data.conversations:
        raise datasets.DataError(f"{args.path}: no question is left of what was chosen")
    chosen = [f"part {args.part}"]
    chosen += [f"first {args.conversations} conversations"] if args.conversations else []
    chosen += [f"{args.per_conversation} questions of each"] if args.per_conversation else []
    chosen += [f"categories {' '.join(args.categories)}"] if args.categories else []
    command = [worker.find_command(args.bin)]
    for flag in ("model", "embed_model", "threads", "context"):
        if value := getattr(args, flag):
            command += [f"--{flag.replace('_', '-')}", str(value)]
    plan = runs.Plan(
        data=data,
        arms=arms.complete(arm for text in args.arms for arm in arms.parse(text)),
        facts=args.facts,
        folder=args.out,
        command=command,
        max_tokens=args.max_tokens,
        seed=args.seed,
        jobs=args.jobs,
        selection=", ".join(chosen),
        server=_server(args),
    )
    print(runs.run(plan, _say))


def _report(args: argparse.Namespace) -> None:
    margins = {**report.MARGINS, "f1": args.margin / 100, "rank1": args.margin / 100}
    audited = audit.read(args.audit) if args.audit else None
    made = report.make(args.run / "run.jsonl", margins, args.seed, audited)
    for path in report.write(made, args.to or args.run / "report"):
        print(path)


def _judge(args: argparse.Namespace) -> None:
    asked = _server(args)
    assert asked is not None  # --server is required
    print(judge.judge(args.run / "run.jsonl", asked, args.prompt, _say))


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        {"report": _report, "judge": _judge}.get(args.verb, _run)(args)
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on")
        return 130
    except (
        datasets.DataError,
        runs.RunError,
        worker.WorkerError,
        server.ServerError,
        OSError,
        ValueError,
    ) as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
