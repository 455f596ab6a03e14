"""Arms: the ways in which the model is given its memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

MEMORIES = ("kv", "text", "shuffled", "none", "all", "mem0")
CODECS = ("none", "int8", "fp8")
ARTICLE_WINDOWS = (0, 5, 20, 50)


@dataclass(frozen=True)
class Store:
    """What a data directory is filled with: KV depends on all of it."""

    window: str
    episode: int
    codec: str
    infer: bool = False

    @property
    def folder(self) -> str:
        words = [self.window, str(self.episode), self.codec, *(["infer"] if self.infer else [])]
        return re.sub(r"[^a-z0-9]+", "-", " ".join(words))


@dataclass(frozen=True)
class Arm:
    """One way. `text` is full prefill of the same composition, `server` the same text answered by
    a server, `shuffled` full prefill of its episodes in another order, `all` the newest turns as
    far as the context goes, `mem0` the turns that Mem0 finds, as text. With `infer` memory is what
    the model itself draws from the turns instead of the turns. The defaults are the
    application's."""

    memory: str
    window: str = "anchor(20)"
    episode: int = 3
    plain: int = 3
    codec: str = "none"
    infer: bool = False

    @property
    def store(self) -> Store:
        return Store(self.window, self.episode, self.codec, self.infer)

    @property
    def name(self) -> str:
        """Of what matters for this memory."""
        if self.memory in ("none", "all", "mem0"):
            return self.memory
        words = [self.memory, f"e{self.episode}"]
        if self.memory == "kv":
            words += [self.window, f"m{self.plain}"]
            words += [self.codec] if self.codec != "none" else []
        words += ["infer"] if self.infer else []
        return " ".join(words)

    @property
    def reference(self) -> str:
        """The text arm that reads the same composition, whose numbers it is compared with; the one
        that reads the turns for text of what was drawn from them."""
        infer = self.infer and self.memory != "text"
        return Arm("text", episode=self.episode, infer=infer).name


def parse(text: str) -> list[Arm]:
    """`kv`, `text`, `kv:window=isolated,episode=1,plain=0,codec=int8`, or `article` for the nearest
    to the published method: single facts, nothing plain, each behind the w turns before it."""
    if text == "article":
        windows = [f"window({w})" if w else "isolated" for w in ARTICLE_WINDOWS]
        return [Arm("kv", window=window, episode=1, plain=0) for window in windows]
    memory, _, settings = text.partition(":")
    if memory not in MEMORIES:
        raise ValueError(f"arm '{text}' is none of {', '.join(MEMORIES)}, article")
    arm = Arm(memory)
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.partition("=")
        if name == "window" and re.fullmatch(r"isolated|session|\w+\(\d+(\+\d+)*\)", value):
            arm = replace(arm, window=value)
        elif name == "codec" and value in CODECS:
            arm = replace(arm, codec=value)
        elif name == "episode" and value.isdigit() and int(value) > 0:
            arm = replace(arm, episode=int(value))
        elif name == "infer" and value in ("0", "1"):
            arm = replace(arm, infer=value == "1")
        elif name == "plain" and value.isdigit():
            arm = replace(arm, plain=int(value))
        else:
            raise ValueError(f"arm '{text}': '{setting}' is not understood")
    return [arm]


def complete(arms: Iterable[Arm]) -> list[Arm]:
    """Without repetitions, with the text arms that others are compared with, and with as few stores
    as will do: an arm that takes no KV reads the composition from a store that another needs."""
    listed = list(arms)
    stores: dict[tuple[int, bool], Store] = {}
    for arm in listed:
        if arm.memory == "kv":
            stores.setdefault((arm.episode, arm.infer), arm.store)
    out: dict[str, Arm] = {}
    texts = {(arm.episode, infer) for arm in listed for infer in (False, arm.infer)}
    listed += [Arm("text", episode=episode, infer=infer) for episode, infer in sorted(texts)]
    for arm in sorted(listed, key=lambda a: a.memory != "text"):
        if arm.memory != "kv":
            usual = Arm("text", episode=arm.episode, infer=arm.infer).store
            store = stores.get((arm.episode, arm.infer), usual)
            arm = replace(arm, window=store.window, codec=store.codec, plain=0)
        out.setdefault(arm.name, arm)
    return list(out.values())
