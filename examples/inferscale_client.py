"""The same with our own client: facts in, an answer as it comes, the facts that it was given.

Needs: pip install './python[client]'
"""

import os

from inferscale.client import InferScale

gateway = os.environ.get("GATEWAY", "http://127.0.0.1:8080")
with InferScale(gateway, key=os.environ.get("KEY")) as memory:
    memory.add("Bo moved to Lisbon.", user="bo", metadata={"topic": "home"})
    memory.add_many(["Bo's cat is called Miso.", "Bo is allergic to nuts."], user="bo")
    for fact in memory.search("Where does Bo live?", user="bo", k=1):
        print("found:", fact.text, fact.metadata)
    with memory.stream("Where does Bo live?", user="bo", max_tokens=24) as answer:
        for piece in answer:
            print(piece, end="", flush=True)
    print()
    print("knew:", [fact.text for fact in answer.answer.facts])
    print("erased:", memory.delete_all(user="bo").facts)
