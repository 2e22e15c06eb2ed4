"""The hooks of a cache session: around the forward, around the first block, around every other block."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from diffusers.hooks.hooks import ModelHook

from .target import CacheTarget, Rows

HOOK = "videoinfer_cache"


class Session(Protocol):
    """What the hooks ask, in the order of a forward. An answer of None means: run."""

    target: CacheTarget

    @property
    def answers(self) -> bool: ...
    def enter(self, arguments: Mapping[str, Any]) -> Rows | None: ...
    def at_input(self, hidden_states: torch.Tensor, arguments: tuple[Any, ...]) -> torch.Tensor | None: ...
    def at_probe(self, hidden_states: torch.Tensor) -> torch.Tensor | None: ...
    def at_tail(self, hidden_states: torch.Tensor) -> None: ...
    def leave(self, outputs: Rows) -> None: ...


def session_hooks(session: Session) -> list[tuple[Any, str, ModelHook]]:
    """(module, name, hook) for a session's transformer."""
    blocks = list(session.target.blocks)
    hooks: list[tuple[Any, str, ModelHook]] = [(session.target.transformer, HOOK, _Root(session))]
    hooks.append((blocks[0], HOOK, _Leader(session, tail=len(blocks) == 1)))
    return hooks + [(block, HOOK, _Block(session, tail=block is blocks[-1])) for block in blocks[1:]]


class _Hook(ModelHook):
    def __init__(self, session: Session, tail: bool = False) -> None:
        super().__init__()
        self.session, self.tail = session, tail

    @property
    def original(self) -> Any:
        """The module's own forward; diffusers sets it when the hook is registered."""
        return self.fn_ref.original_forward


class _Root(_Hook):
    def new_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        session = self.session
        if args:
            raise RuntimeError("the denoise loop gives the transformer positional arguments: no cache can read them")
        answer = session.enter(kwargs)
        result = session.target.result(answer) if answer is not None else self.original(**kwargs)
        session.leave(session.target.outputs(result))
        return result


class _Leader(_Hook):
    def new_forward(self, module: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        answer = self.session.at_input(hidden_states, args)
        if answer is not None:
            return answer
        output = self.original(hidden_states, *args, **kwargs)
        answer = self.session.at_probe(output)
        if answer is not None:
            return answer
        if self.tail:
            self.session.at_tail(output)
        return output


class _Block(_Hook):
    def new_forward(self, module: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.session.answers:
            return hidden_states
        output = self.original(hidden_states, *args, **kwargs)
        if self.tail:
            self.session.at_tail(output)
        return output
