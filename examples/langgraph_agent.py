"""A LangGraph graph with long-term memory: what one thread says, another knows.

Needs: pip install './python[langgraph]'
"""

import os
from typing import TypedDict

from inferscale.client import InferScale
from inferscale.langgraph import InferScaleStore, user_of
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore

gateway = os.environ.get("GATEWAY", "http://127.0.0.1:8080")
memory = InferScale(gateway, key=os.environ.get("KEY"))
DI = ("memories", "di")


class State(TypedDict):
    said: str
    answer: str


def remember(state: State, *, store: BaseStore) -> None:
    store.put(DI, state["said"], {"text": state["said"]})


def reply(state: State) -> dict[str, str]:
    return {"answer": memory.chat(state["said"], user=user_of(DI), max_tokens=24).text}


builder = StateGraph(State)
builder.add_node("reply", reply)
builder.add_node("remember", remember)
builder.add_edge(START, "reply")
builder.add_edge("reply", "remember")
store = InferScaleStore(memory)
graph = builder.compile(store=store)

for text in ("I am Di, and I moved to Lisbon.", "In which city do I live?"):
    print(graph.invoke({"said": text, "answer": ""})["answer"])
print("knows:", [item.value["text"] for item in store.search(DI, query="Di's city")])
