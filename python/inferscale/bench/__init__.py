"""Quality benchmarks: data sets x arms x numbers of facts, against full prefill of the same prompt.

`python -m inferscale.bench --help`; docs/quality.md says what is measured and how to read it.
"""
