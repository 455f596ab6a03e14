"""Makes a long conversation for benchmarks: every turn another small fact, the same for a seed.

python3 conversation.py TURNS > conversation.jsonl
"""

from __future__ import annotations

import datetime
import json
import random
import sys
from collections.abc import Iterator

NAMES = ("Aino", "Bashir", "Carla", "Deniz", "Elif", "Farid", "Greta", "Hiro", "Imani", "Jonas")
THINGS = ("bicycle", "kayak", "telescope", "piano", "greenhouse", "camera", "loom", "canoe", "kiln")
PLACES = ("Bergen", "Porto", "Oaxaca", "Kyoto", "Tartu", "Cusco", "Ghent", "Fez", "Hobart", "Nuuk")
COLOURS = ("red", "teal", "ochre", "violet", "grey", "amber", "indigo", "white", "black", "olive")
SAID = (
    "I bought a {colour} {thing} in {place} for {number} euros, and {name} carried it home.",
    "My cousin {name} moved to {place} last week; flat {number} has a {colour} door.",
    "We sold the old {thing} to {name} from {place}. It was {colour} and {number} years old.",
    "Remember that {name} keeps the key of the {thing} shed in {place} by {colour} pot {number}.",
    "On Sunday {name} and I walk {number} kilometres near {place}; bring the {colour} {thing}.",
    "The doctor in {place} told {name} to rest for {number} days; the {colour} {thing} stays here.",
)


def turns(count: int, seed: int = 7) -> Iterator[dict[str, str]]:
    draw = random.Random(seed)
    day = datetime.date(2023, 1, 2)
    for number in range(count):
        if number % 12 == 11:
            day += datetime.timedelta(days=draw.randrange(1, 4))
        text = draw.choice(SAID).format(
            name=draw.choice(NAMES),
            thing=draw.choice(THINGS),
            place=draw.choice(PLACES),
            colour=draw.choice(COLOURS),
            number=draw.randrange(3, 4000),
        )
        speaker = "Noor" if number % 2 == 0 else "Tomas"
        yield {"speaker": speaker, "when": day.isoformat(), "text": text}


def questions(count: int, seed: int = 8) -> list[str]:
    draw = random.Random(seed)
    asked = (
        "What did {name} do in {place}?",
        "Where is the {colour} {thing}?",
        "Who bought a {thing} in {place}, and for how much?",
        "What should I remember about {name} and the {colour} {thing}?",
    )
    return [
        draw.choice(asked).format(
            name=draw.choice(NAMES),
            thing=draw.choice(THINGS),
            place=draw.choice(PLACES),
            colour=draw.choice(COLOURS),
        )
        for _ in range(count)
    ]


if __name__ == "__main__":
    for turn in turns(int(sys.argv[1])):
        print(json.dumps(turn, ensure_ascii=False))
