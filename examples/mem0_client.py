"""A program written for Mem0's hosted service: only `host` is new.

Needs: pip install mem0ai
"""

import os

os.environ.setdefault("MEM0_TELEMETRY", "False")

from mem0 import MemoryClient

gateway = os.environ.get("GATEWAY", "http://127.0.0.1:8080")
memory = MemoryClient(api_key=os.environ.get("KEY", "none"), host=gateway)
memory.add(
    [
        {"role": "user", "content": "I moved to Lisbon."},
        {"role": "assistant", "content": "How do you like it?"},
    ],
    user_id="cy",
)
for found in memory.search("Where does the user live?", filters={"user_id": "cy"})["results"]:
    print(f"{found['score']:.2f}", found["memory"])
memory.delete_all(user_id="cy")
