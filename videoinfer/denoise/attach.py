"""Hooks on the modules of a model that leave no trace: names, keys and attributes are as before afterwards."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from diffusers.hooks.hooks import HookRegistry, ModelHook
from torch import nn

REGISTRY, FORWARD = "_diffusers_hook", "forward"


@contextmanager
def attached(root: nn.Module, hooks: Sequence[tuple[nn.Module, str, ModelHook]]) -> Iterator[None]:
    """Registers (module, name, hook) in diffusers' registries for the length of the block.

    Raises RuntimeError when one of the names is taken: a second session on one model would not know of the first.
    """
    for module, name, _ in hooks:
        registry = getattr(module, REGISTRY, None)
        if registry is not None and registry.get_hook(name) is not None:
            raise RuntimeError(f"the model has a session already ({name}): one at a time")
    before = [(module, REGISTRY in vars(module), FORWARD in vars(module)) for module, _, _ in hooks]
    done: list[tuple[nn.Module, str]] = []
    try:
        for module, name, hook in hooks:
            HookRegistry.check_if_exists_or_initialize(module).register_hook(hook, name)
            done.append((module, name))
        _forget_children(root)
        yield
    finally:
        for module, name in reversed(done):
            getattr(module, REGISTRY).remove_hook(name, recurse=False)
        for module, had_registry, had_forward in before:
            if not had_forward:
                vars(module).pop(FORWARD, None)  # the registry puts the class's own method there
            if not had_registry:
                vars(module).pop(REGISTRY, None)
        _forget_children(root)


def _forget_children(root: nn.Module) -> None:
    """Registries remember which children have one; what was added or removed below must be looked for anew."""
    for module in root.modules():
        registry = getattr(module, REGISTRY, None)
        if registry is not None:
            registry._child_registries_cache = None
