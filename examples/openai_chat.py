"""Memory for a program that talks to OpenAI's API: another base_url, and `memory` in the request.

Needs: pip install openai
"""

import os

import openai

gateway = os.environ.get("GATEWAY", "http://127.0.0.1:8080")
client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=os.environ.get("KEY", "none"))


def say(text: str) -> None:
    answer = client.chat.completions.create(
        model="inferscale",
        messages=[{"role": "user", "content": text}],
        extra_body={"memory": {"user": "ana", "remember": True}},
        max_tokens=24,
    )
    print(answer.choices[0].message.content)
    for fact in answer.model_dump()["inferscale"]["facts"]:
        print("   knew:", fact["text"], "(injected)" if fact["injected"] else "(computed)")


say("I am Ana, and I moved to Lisbon.")
say("In which city do I live?")  # a new conversation, as far as the client knows
