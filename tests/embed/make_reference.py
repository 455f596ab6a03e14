"""Makes minilm_reference.json: what the original all-MiniLM-L6-v2 computes for some sentences.

    make_reference.py MODEL_DIR > minilm_reference.json

Run once, in an environment with sentence-transformers and torch; the test only reads the result.
"""

from __future__ import annotations

import json
import sys

from sentence_transformers import SentenceTransformer

SENTENCES = [
    "Ana moved to Lisbon.",
    "Does she still work as a nurse, or has she gone back to university?",
    "[8 May 2023] Ben: I paid $1,249.50 for the bike -- 20% off, can you believe it?!",
    "Grüße aus Köln: Jürgen übt täglich Cello, naïve Café-Musik inklusive.",
    "今日は天気がいいので、公園へ行きます。",
    "Мой брат живёт в Новосибирске с 2011 года.",  # noqa: RUF001
    "x",
    "def f(n): return n if n < 2 else f(n-1) + f(n-2)  # see https://example.org/a?b=c",
    "antidisestablishmentarianism hippopotomonstrosesquippedaliophobia \U0001f600 zzzzqqqq",
    (
        "We started the garden three years ago, when the twins were still in primary school, and "
        "what began as two raised beds behind the garage now covers most of the slope down to the "
        "creek. Tomatoes never did well there, since the oaks take the afternoon light, but kale, "
        "beans and the old-fashioned roses that my grandmother left us are thriving. Last October "
        "we added a pond, lined with clay from the river bank, and by spring there were newts in "
        "it. My husband wants bees next; I would rather have a bench and an hour to sit on it."
    ),
]


def main() -> None:
    model = SentenceTransformer(sys.argv[1], device="cpu")
    vectors = model.encode(SENTENCES, normalize_embeddings=True)
    cases = [
        {"text": text, "vector": [round(float(value), 6) for value in vector]}
        for text, vector in zip(SENTENCES, vectors, strict=True)
    ]
    json.dump(cases, sys.stdout, ensure_ascii=False, indent=None, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
