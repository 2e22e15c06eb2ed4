"""A training that is stopped and resumed continues exactly; a half-written checkpoint is never seen."""

from copy import deepcopy

import torch
from torch import nn

from videoinfer.demo.trainer import Trainer, load_average


def steps(trainer, model, count):
    for _ in range(count):
        data = torch.full((4, 3), float(trainer.step % 5))
        trainer.update((model(data) - 1.0).square().mean(), 1.0)


def net():
    torch.manual_seed(3)
    return nn.Linear(3, 2)


def test_resume_equals_an_unbroken_run(tmp_path):
    whole = net()
    steps(Trainer(whole, tmp_path / "whole.safetensors", lr=0.01), whole, 20)

    first = net()
    trainer = Trainer(first, tmp_path / "part.safetensors", lr=0.01)
    steps(trainer, first, 12)
    trainer.seconds = 7.5
    trainer.save()
    second = net()
    resumed = Trainer(second, tmp_path / "part.safetensors", lr=0.01)
    assert (resumed.step, resumed.seconds) == (12, 7.5)
    steps(resumed, second, 8)
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part.safetensors"]


def test_the_average_lags_behind_and_loads(tmp_path):
    model = net()
    trainer = Trainer(model, tmp_path / "c.safetensors", lr=0.1, average=0.9)
    steps(trainer, model, 30)
    trainer.save()
    loaded = load_average(net(), tmp_path / "c.safetensors")
    assert torch.equal(loaded.weight, trainer.ema[0]) and not torch.equal(loaded.weight, model.weight)


def test_training_on_a_bfloat16_copy_updates_the_model_in_float32(tmp_path):
    exact, model = net(), net()
    copy = deepcopy(model).bfloat16()
    steps(Trainer(exact, tmp_path / "a.safetensors", lr=0.01), exact, 20)
    trainer = Trainer(model, tmp_path / "b.safetensors", lr=0.01, working=copy)
    for _ in range(20):
        data = torch.full((4, 3), float(trainer.step % 5), dtype=torch.bfloat16)
        trainer.update((copy(data) - 1.0).square().mean(), 1.0)
    torch.testing.assert_close(model.weight, exact.weight, atol=0.02, rtol=0)
    assert torch.equal(copy.weight, model.weight.bfloat16())
    assert not torch.equal(model.weight, model.weight.bfloat16().float())

    trainer.save()
    resumed, stale = net(), net().bfloat16()
    Trainer(resumed, tmp_path / "b.safetensors", lr=0.01, working=stale)
    assert torch.equal(resumed.weight, model.weight) and torch.equal(stale.weight, copy.weight)
