"""From run files to tables, JSON and a plot: numbers only, no text of a data set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from inferscale.bench import audit, judge, runs
from inferscale.bench.arms import Arm
from inferscale.bench.measures import MEASURES, measure
from inferscale.bench.statistics import Estimate, NonInferiority, estimate, non_inferiority

# In which an arm must not be worse than text, and by how much it may be (NLL: nats a token).
MARGINS = {"f1": 0.01, "rank1": 0.01, "judged": 0.01, "nll": 0.03}


@dataclass
class Row:
    """One arm with one number of facts."""

    arm: str
    facts: int
    reference: str
    measures: dict[str, Estimate] = field(default_factory=dict)
    against_text: dict[str, NonInferiority] = field(default_factory=dict)
    refused_unanswerable: Estimate | None = None
    f1_by_category: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)  # means of prompt, injected, prefilled


@dataclass
class Report:
    run: dict[str, Any]
    questions: int
    rows: list[Row]
    judge: dict[str, Any] | None = None
    audit: dict[str, Any] | None = None  # by which questions are left out

    def measures(self) -> list[str]:
        """That any arm has."""
        return [what for what in MEASURES if any(what in row.measures for row in self.rows)]


@dataclass
class _Numbers:
    """Values of one arm, question by question, with the question's conversation."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)  # [measure][question]
    groups: dict[str, str] = field(default_factory=dict)  # [question]

    def of(self, measure_name: str, only: Iterable[str]) -> tuple[list[float], list[str]]:
        known = self.values.get(measure_name, {})
        chosen = [id for id in only if id in known]
        return [known[id] for id in chosen], [self.groups[id] for id in chosen]


def _numbers(questions: Sequence[dict[str, Any]], name: str, reference: str) -> _Numbers:
    numbers = _Numbers()
    for question in questions:
        arms = question["arms"]
        numbers.groups[question["id"]] = question["conversation"]
        for what, value in measure(question, arms[name], arms[reference]).items():
            numbers.values.setdefault(what, {})[question["id"]] = value
    return numbers


def _row(
    questions: Sequence[dict[str, Any]], arm: Arm, facts: int, margins: dict[str, float], seed: int
) -> Row:
    name = runs.key(arm, facts)
    reference = f"{arm.reference} @{facts}"
    row = Row(arm.name, facts, arm.reference)
    numbers = _numbers(questions, name, reference)
    if arm.infer:  # its facts are no turns
        numbers.values.pop("recall", None)
    text = _numbers(questions, reference, reference)
    answerable = [question["id"] for question in questions if question["answer"]]
    others = [question["id"] for question in questions if not question["answer"]]
    for what in MEASURES:
        values, groups = numbers.of(what, answerable)
        if values:
            row.measures[what] = estimate(values, groups, seed)
    if others:
        row.refused_unanswerable = estimate(*numbers.of("refused", others), seed)
    for what, margin in margins.items():
        values, groups = numbers.of(what, answerable)
        if values and arm.name != arm.reference:
            row.against_text[what] = non_inferiority(
                values,
                text.of(what, answerable)[0],
                groups,
                margin=margin,
                larger_is_better=MEASURES[what][1] is True,
                seed=seed,
            )
    for category in sorted({q["category"] for q in questions if q["answer"]}):
        ids = [q["id"] for q in questions if q["answer"] and q["category"] == category]
        f1 = numbers.of("f1", ids)[0]
        row.f1_by_category[category] = sum(f1) / len(f1)
    for what in ("prompt_tokens", "injected_tokens", "prefilled_tokens"):
        counts = [question["arms"][name][what] for question in questions]
        row.tokens[what] = sum(counts) / len(counts)
    return row


def make(
    path: Path,
    margins: dict[str, float] | None = None,
    seed: int = 0,
    audited: audit.Audit | None = None,
) -> Report:
    """Reads a run's file; what is not answered yet is not counted, nor what `audited` doubts."""
    header, questions, _ = runs.read(path)
    if not questions:
        raise runs.RunError(f"{path}: no question is answered yet")
    about_audit = None
    if audited is not None:
        sound = [question for question in questions if not audited.doubts(question)]
        if not sound:
            raise runs.RunError(f"{path}: the audit leaves no question")
        left_out = len(questions) - len(sound)
        about_audit = {"name": audited.name, "sha256": audited.sha256, "left_out": left_out}
        questions = sound
    questions.sort(key=lambda question: str(question["id"]))  # resampling shall not see the order
    verdicts = judge.read(path)
    if verdicts is not None:
        for question in questions:
            question["verdicts"] = verdicts.right.get(question["id"], {})
    arms = [Arm(**{k: v for k, v in arm.items() if k != "name"}) for arm in header["arms"]]
    rows = [
        _row(questions, arm, facts, margins or MARGINS, seed)
        for facts in header["facts"]
        for arm in arms
    ]
    about_judge = verdicts.about() if verdicts else None
    return Report(header, len(questions), rows, about_judge, about_audit)


# ---- Markdown ----------------------------------------------------------------------------------


def _cell(value: Estimate | None, unit: str, signed: bool = False) -> str:
    if value is None:
        return "-"
    scale, digits = (100.0, 1) if unit == "%" else (1.0, 3)
    sign = "+" if signed else ""
    mean, low, high = (f"{scale * x:{sign}.{digits}f}" for x in (value.mean, value.low, value.high))
    return f"{mean} [{low}, {high}]"


def _test_cell(test: NonInferiority | None, unit: str) -> str:
    if test is None:
        return "-"
    verdict = "yes" if test.shown else "not shown"
    scale, digits = (100.0, 1) if unit == "%" else (1.0, 3)
    return f"{_cell(test.gain, unit, signed=True)}; {verdict} ({scale * test.worst:+.{digits}f})"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(line)} |" for line in lines),
        "",
    ]


def _setup(report: Report) -> list[str]:
    run, model = report.run, report.run["model"]
    data = f"{run['data']['name']}, sha256 {run['data']['sha256'][:16]}, {run['selection']}"
    asked = f"{report.questions} of {run['questions']} questions"
    of_model = f"{model['name']} ({model['description']}), fingerprint {model['fingerprint'][:16]}"
    machine = f"{run['machine']['system']}, {run['machine']['processors']} processors"
    lines = [
        f"- data: {data}",
        f"- {asked} of {run['conversations']} conversations, answers of at most "
        f"{run['max_tokens']} tokens, seed {run['seed']}",
        f"- model: {of_model}, context {model['context_tokens']} tokens",
        f"- {model['engine']}, InferScale {model['version']}; self-test: {model['self_test']}",
        f"- machine: {machine}; {run['started']}",
    ]
    for name, told in run["encoding"].items():
        if told and told["stored_tokens"]:
            ratio = told["computed_tokens"] / told["stored_tokens"]
            lines.append(
                f"- encoding {name}: {told['stored_tokens']:,} tokens of {told['facts']:,} facts, "
                f"{ratio:.2f} computed for one stored, {told['ms'] / 1000:.0f} s"
            )
    if report.audit:
        lines.append(
            f"- without {report.audit['left_out']} questions whose right answer is wrong by "
            f"{report.audit['name']}, sha256 {report.audit['sha256'][:16]}"
        )
    if report.judge:
        lines.append(
            f"- judge: {report.judge['judge']}, the {report.judge['prompt']} prompt; of answers "
            f"known to be wrong it takes {100 * report.judge['wrong_accepted']:.1f} % for right"
        )
    return [*lines, ""]


_HOW_TO_READ = """\
Means with 95 % intervals (conversations resampled, then questions in them). KL, agreement and gold
NLL are over the tokens of the right answer; answers are greedy. Every arm is compared with `text`
of the same episode size (e) and number of facts: full prefill of the same tokens."""

_HOW_TO_READ_TESTS = """\
Gain over text, question by question, larger is better; is the loss within the margin (one-sided,
5 %)? In parentheses the end of the one-sided interval: the least that the data show."""


def _tests_table(rows: Sequence[Row]) -> list[str]:
    tests = rows[0].against_text
    units = {name: MEASURES[name][2] for name in tests}
    head = ["arm"]
    for name, test in tests.items():
        in_points = units[name] == "%"
        margin = f"{100 * test.margin:g} points" if in_points else f"{test.margin:g} {units[name]}"
        head.append(f"{MEASURES[name][0]}, margin {margin}")
    cells = ([_test_cell(row.against_text.get(n), units[n]) for n in tests] for row in rows)
    return _table(head, ([row.arm, *line] for row, line in zip(rows, cells, strict=True)))


def markdown(report: Report, plot: str) -> str:
    lines = [f"# {report.run['data']['name']}: memory as KV against memory as text", ""]
    lines += [*_setup(report), f"![KL and gold NLL]({plot})", ""]
    lines += [_HOW_TO_READ, ""]
    for facts in report.run["facts"]:
        rows = [row for row in report.rows if row.facts == facts]
        lines += [f"## {facts} facts", ""]
        shown = report.measures()
        head = ["arm", *(f"{MEASURES[m][0]}, {MEASURES[m][2]}" for m in shown)]
        lines += _table(
            head,
            (
                [row.arm, *(_cell(row.measures.get(m), MEASURES[m][2]) for m in shown)]
                for row in rows
            ),
        )
        tests = [row for row in rows if row.against_text]
        if tests:
            lines += [_HOW_TO_READ_TESTS, "", *_tests_table(tests)]
        categories = list(rows[0].f1_by_category)
        head = ["arm", *(f"F1 {c}, %" for c in categories), "refused where nothing answers, %"]
        head += ["tokens of the prompt", "injected", "computed"]
        lines += _table(
            head,
            (
                [
                    row.arm,
                    *(f"{100 * row.f1_by_category[c]:.1f}" for c in categories),
                    _cell(row.refused_unanswerable, "%"),
                    *(f"{count:,.0f}" for count in row.tokens.values()),
                ]
                for row in rows
            ),
        )
    return "\n".join(lines)


def plot(report: Report, to: Path) -> None:
    """KL to full prefill, and what the gold answer's likelihood loses, with intervals."""
    import matplotlib

    matplotlib.use("svg" if to.suffix == ".svg" else "agg")
    from matplotlib import pyplot

    rows = [row for row in report.rows if row.against_text and "kl" in row.measures]
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 1 + 0.35 * max(1, len(rows))), sharey=True)
    names = [f"{row.arm}, {row.facts} facts" for row in rows]
    sides = [
        ("KL to full prefill, nats", [row.measures["kl"] for row in rows]),
        ("gain in gold NLL over text, nats", [row.against_text["nll"].gain for row in rows]),
    ]
    for axis, (title, values) in zip(axes, sides, strict=True):
        for place, value in enumerate(values):
            axis.plot([value.low, value.high], [place, place], color="C0", linewidth=2)
            axis.plot(value.mean, place, "o", color="C0")
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.set_xlabel(title)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(to)
    pyplot.close(figure)


def write(report: Report, stem: Path) -> list[Path]:
    """STEM.md, STEM.json and STEM.svg."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + end) for end in (".md", ".json", ".svg")]
    plot(report, paths[2])
    paths[0].write_text(markdown(report, paths[2].name) + "\n")
    paths[1].write_text(json.dumps(asdict(report), indent=1) + "\n")
    return paths
