"""A true MiniMax-H3 pipeline folder at any small size: the same classes and files as the released one.

`DEMO` is the embedded model, `TINY` the smallest thing that runs (tests). Both keep H3's fixed geometry: 24 video and
32 audio latent channels, 16x spatial and 4x temporal compression, 17-frame clips, 800 samples per audio latent;
diffusers assumes these wherever a stage runs without its VAE.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
from diffusers import __version__ as diffusers_version
from diffusers.schedulers import MiniMaxH3Scheduler
from safetensors.torch import save_file
from transformers import PreTrainedModel

from .sizes import DEMO, TINY, DemoArchitecture
from .text_encoder import make_processor, make_text_encoder, make_tokenizer

__all__ = [
    "DEMO",
    "TINY",
    "DemoArchitecture",
    "make_audio_vae",
    "make_components",
    "make_transformer",
    "make_vae",
    "write_pipeline_folder",
]

LATENT_CHANNELS = 24
AUDIO_LATENT_CHANNELS = 32


def make_transformer(arch: DemoArchitecture) -> MiniMaxH3Transformer3DModel:
    """The DiT with fresh weights, float32."""
    return MiniMaxH3Transformer3DModel(
        num_attention_heads=arch.num_heads,
        attention_head_dim=arch.hidden_size // arch.num_heads,
        hidden_size=arch.hidden_size,
        num_layers=arch.num_layers,
        num_refiner_layers=arch.num_refiner_layers,
        ffn_dim=arch.ffn_dim,
        in_channels=LATENT_CHANNELS,
        audio_in_channels=AUDIO_LATENT_CHANNELS,
        patch_size=(1, 2, 2),
        text_dim=arch.text_width,
        freq_dim=arch.freq_dim,
        time_embed_hidden_dim=arch.time_embed_hidden_dim,
        time_embed_dim=arch.time_embed_dim,
        rope_freq_dim=arch.rope_freq_dim,
    )


def make_vae(
    arch: DemoArchitecture, latents_mean: Iterable[float] | None = None, latents_std: Iterable[float] | None = None
) -> AutoencoderKLMiniMaxH3:
    """The video VAE with fresh weights, float32; the statistics default to zero mean and unit deviation."""
    return AutoencoderKLMiniMaxH3(
        latent_channels=LATENT_CHANNELS,
        block_out_channels=arch.vae_block_out_channels,
        layers_per_block=1,
        spatial_downsample_factors=(2, 2, 2, 2),
        temporal_downsample_factors=(1, 2, 2, 1),
        norm_num_groups=arch.vae_norm_num_groups,
        decoder_num_layers=arch.vae_decoder_layers,
        decoder_num_attention_heads=arch.vae_decoder_heads,
        decoder_attention_head_dim=arch.vae_decoder_head_dim,
        decoder_num_register_tokens=arch.vae_decoder_register_tokens,
        decoder_ffn_mult=arch.vae_decoder_ffn_mult,
        latents_mean=tuple(latents_mean or (0.0,) * LATENT_CHANNELS),
        latents_std=tuple(latents_std or (1.0,) * LATENT_CHANNELS),
    )


def make_audio_vae(
    arch: DemoArchitecture, latents_mean: Iterable[float] | None = None, latents_std: Iterable[float] | None = None
) -> AutoencoderKLMiniMaxH3Audio:
    """The audio VAE with fresh weights, float32; the statistics default to zero mean and unit deviation."""
    return AutoencoderKLMiniMaxH3Audio(
        encoder_dim=arch.audio_encoder_dim,
        latent_dim=arch.audio_latent_dim,
        latent_channels=AUDIO_LATENT_CHANNELS,
        num_attention_heads=arch.audio_heads,
        decoder_dim=arch.audio_decoder_dim,
        decoder_rates=arch.audio_decoder_rates,
        decoder_kernel_sizes=tuple(2 * rate - rate % 2 for rate in arch.audio_decoder_rates),
        resblock_kernel_sizes=(3,),
        resblock_dilation_sizes=(arch.audio_dilations,),
        latents_mean=list(latents_mean or (0.0,) * AUDIO_LATENT_CHANNELS),
        latents_std=list(latents_std or (1.0,) * AUDIO_LATENT_CHANNELS),
    )


def make_components(arch: DemoArchitecture, words: Iterable[str], seed: int = 0) -> dict[str, Any]:
    """Every component of the pipeline with fresh weights, by the names that diffusers uses."""
    words = sorted(set(words))
    tokenizer = make_tokenizer(words)
    text = (arch.text_width, arch.text_head_dim, arch.text_ffn_dim, arch.vision_width)
    # Fresh weights come from torch's global generator; it is put back so that building a model has no side effect.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {
            "tokenizer": tokenizer,
            "processor": make_processor(tokenizer),
            "text_encoder": make_text_encoder(tokenizer, words, *text, seed=seed),
            "vae": make_vae(arch),
            "audio_vae": make_audio_vae(arch),
            "transformer": make_transformer(arch),
            "scheduler": MiniMaxH3Scheduler(shift=12.0),
            "audio_scheduler": MiniMaxH3Scheduler(shift=3.0),
        }


def _save(component: Any, folder: Path, dtype: torch.dtype) -> None:
    """Save one component in the storage dtype; modules that diffusers pins to float32 stay so, as in the release."""
    if not isinstance(component, torch.nn.Module):
        component.save_pretrained(folder)
        return
    pinned = tuple(getattr(component, "_keep_in_fp32_modules", None) or ())
    weights = {}
    for name, tensor in component.state_dict().items():
        stored = torch.float32 if any(part in name for part in pinned) else dtype
        weights[name] = (tensor.to(stored) if tensor.is_floating_point() else tensor).contiguous()
    saved: Any = component
    if isinstance(component, PreTrainedModel):
        saved.save_pretrained(folder, state_dict=weights)
    else:
        saved.save_config(folder)
        save_file(weights, folder / "diffusion_pytorch_model.safetensors", metadata={"format": "pt"})


def write_pipeline_folder(
    folder: str | Path, components: dict[str, Any], arch: DemoArchitecture, dtype: torch.dtype = torch.bfloat16
) -> Path:
    """Write the components (safetensors) and `modular_model_index.json`, loadable by diffusers' `ModularPipeline`.

    `transformer_ref` reads the folder of `transformer` unless the components hold one of their own, so that one DiT on
    disk serves all three workflows.
    """
    folder = Path(folder)
    index: dict[str, Any] = {
        "_blocks_class_name": "MiniMaxH3Blocks",
        "_class_name": "MiniMaxH3ModularPipeline",
        "_diffusers_version": diffusers_version,
        "canvas_short_edge": arch.canvas_short_edge,
        "canvas_max_pixels": arch.canvas_max_pixels,
        "reference_image_short_edge": arch.reference_image_short_edge,
    }
    for name in (*components, *(() if "transformer_ref" in components else ("transformer_ref",))):
        subfolder = name if name in components else "transformer"
        component = components[subfolder]
        if name in components:
            _save(component, folder / subfolder, dtype)
        library = type(component).__module__.split(".")[0]
        kind = [library, type(component).__name__]
        # "." is never read: diffusers replaces it by the folder that it finds the component in.
        spec = {"pretrained_model_name_or_path": ".", "subfolder": subfolder, "variant": None, "revision": None}
        index[name] = [*kind, {"type_hint": kind, **spec}]
    (folder / "modular_model_index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return folder
