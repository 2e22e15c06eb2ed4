"""The numbers that cache policies ask for, all in float32, read from the device in one go."""

from collections.abc import Mapping

import torch


def relative_change(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """mean |now - before| / mean |before|, 0-dimensional."""
    now, before = now.float(), before.float()
    return (now - before).abs().mean() / before.abs().mean()


def mean_change(now: tuple[torch.Tensor, ...], before: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """mean |now - before| over all elements of several tensors."""
    return mean_size(tuple(a.float() - b.float() for a, b in zip(now, before, strict=True)))


def mean_size(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """mean |x| over all elements of several tensors."""
    total = torch.stack([tensor.float().abs().sum() for tensor in tensors]).sum()
    return total / sum(tensor.numel() for tensor in tensors)


def row_ratio(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Mean over rows (last dimension) of |now| / |before|."""
    return (now.float().norm(dim=-1) / before.float().norm(dim=-1)).mean()


def read(values: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """The numbers behind 0-dimensional tensors, with a single wait for the device."""
    if not values:
        return {}
    numbers = torch.stack([value.float() for value in values.values()]).tolist()
    return dict(zip(values, numbers, strict=True))


def wiener_filtered(latents: torch.Tensor, sigma: float, power: float = 3.0) -> torch.Tensor:
    """Latents (T, H, W, C) behind the Wiener filter of SeaCache (arXiv:2602.18993, equations 5 to 7).

    Along each axis the gain is (1 - sigma) P / ((1 - sigma)^2 P + sigma^2), P = 1 / f^power the spectrum of clean
    video; the product of the three is scaled to mean 1.
    """
    spectrum = torch.fft.fftn(latents.float(), dim=(0, 1, 2))
    sigma = min(max(sigma, 1e-6), 1.0 - 1e-6)
    gain = torch.ones((), device=latents.device)
    for axis in range(3):
        frequency = torch.fft.fftfreq(latents.shape[axis], device=latents.device).abs()
        clean = 1.0 / (frequency**power + 1e-16)
        along = (1.0 - sigma) * clean / ((1.0 - sigma) ** 2 * clean + sigma**2 + 1e-16)
        gain = gain * along.view([-1 if k == axis else 1 for k in range(4)])
    mean = gain.mean()
    gain = torch.where(mean > 0.0, gain / mean, gain)
    return torch.fft.ifftn(spectrum * gain, dim=(0, 1, 2)).real
