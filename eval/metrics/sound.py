"""How far the sound of a clip, float (channels, N), is from that of the dense clip of the same request."""

import numpy as np
import torch

from .checks import float64_pair

SILENCE = 1e-3  # root mean square of full scale 1; what the demo's checker takes for no sound
WINDOW, HOP = 1024, 256  # samples: 32 and 8 ms at 32 kHz
FLOOR = 1e-3  # of the loudest partial of the dense sound (-60 dB): quieter ones are not told apart
LOWEST_FLOOR = 1e-4  # of full scale (-80 dB), also where the dense sound is silent


def waveform_error(audio: torch.Tensor | np.ndarray, dense: torch.Tensor | np.ndarray) -> float:
    """|a - a_dense| / |a_dense| over all samples and channels, in float64.

    A dense sound quieter than SILENCE is taken to be as loud as SILENCE: two silences have no error, and a noise where
    there was silence has a large but finite one. Raises ValueError when the shapes differ or a sample is NaN or Inf.
    """
    ours, theirs = _sounds(audio, dense)
    quietest = SILENCE * theirs.numel() ** 0.5
    return float((ours - theirs).norm() / theirs.norm().clamp(min=quietest))


def log_spectral_distance(audio: torch.Tensor | np.ndarray, dense: torch.Tensor | np.ndarray) -> float:
    """The distance of the spectrograms in dB, which does not hear phase: 0 for the same, 6 for twice as loud.

    The mean over channels and moments of the root mean square, over frequencies, of 20 log10(|A| / |A_dense|) (Gray and
    Markel 1976, IEEE Trans. ASSP 24, 380-391). |A| is the amplitude of a partial of full scale 1 in Hann windows of
    WINDOW samples, HOP apart, padded with silence; on both sides it is at least FLOOR of the dense sound's loudest and
    at least LOWEST_FLOOR, so that the hiss in empty frequencies and silence itself do not count.
    Raises ValueError when the shapes differ or a sample is NaN or Inf.
    """
    ours, theirs = (_amplitudes(side) for side in _sounds(audio, dense))
    floor = max(FLOOR * float(theirs.max()), LOWEST_FLOOR)
    decibels = 20.0 * (ours.clamp(min=floor) / theirs.clamp(min=floor)).log10()
    return float(decibels.square().mean(1).sqrt().mean())


def _sounds(audio: torch.Tensor | np.ndarray, dense: torch.Tensor | np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    ours, theirs = float64_pair("audio", audio, dense)
    if ours.ndim != 2:
        raise ValueError(f"audio must be (channels, N), got {tuple(ours.shape)}.")
    return ours, theirs


def _amplitudes(sound: torch.Tensor) -> torch.Tensor:
    """(channels, frequencies, moments) of float64 samples (channels, N)."""
    window = torch.hann_window(WINDOW, dtype=torch.float64)
    spectrum = torch.stft(sound, WINDOW, HOP, window=window, center=True, pad_mode="constant", return_complex=True)
    return spectrum.abs() * (2.0 / window.sum())
