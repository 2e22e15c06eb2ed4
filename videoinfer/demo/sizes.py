"""The sizes of the embedded model and of the one that tests use."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoArchitecture:
    """Every size of the pipeline; units are channels or layers unless the name says otherwise."""

    text_width: int = 64
    text_head_dim: int = 16
    text_ffn_dim: int = 128
    vision_width: int = 32
    hidden_size: int = 192
    num_layers: int = 6
    num_heads: int = 4
    ffn_dim: int = 512
    freq_dim: int = 64
    time_embed_hidden_dim: int = 128
    time_embed_dim: int = 64
    rope_freq_dim: int = 8
    num_refiner_layers: int = 1
    vae_block_out_channels: tuple[int, ...] = (16, 32, 48, 64)
    vae_norm_num_groups: int = 4
    vae_decoder_layers: int = 3
    vae_decoder_heads: int = 4
    vae_decoder_head_dim: int = 48
    vae_decoder_ffn_mult: int = 2
    vae_decoder_register_tokens: int = 4
    audio_encoder_dim: int = 4
    audio_latent_dim: int = 64
    audio_decoder_dim: int = 32  # halved by every upsampling step
    audio_decoder_rates: tuple[int, ...] = (5, 5, 4, 4, 2)  # fewer steps than the release; one channel last
    audio_heads: int = 2
    audio_dilations: tuple[int, ...] = (1,)
    canvas_short_edge: int = 96
    canvas_max_pixels: int = 96 * 160
    reference_image_short_edge: int = 96


DEMO = DemoArchitecture()
TINY = DemoArchitecture(
    text_width=16,
    text_head_dim=8,
    text_ffn_dim=16,
    vision_width=8,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    ffn_dim=32,
    freq_dim=16,
    time_embed_hidden_dim=16,
    time_embed_dim=8,
    rope_freq_dim=2,
    vae_block_out_channels=(4, 4, 4, 8),
    vae_norm_num_groups=2,
    vae_decoder_layers=1,
    vae_decoder_heads=1,
    vae_decoder_head_dim=16,
    vae_decoder_ffn_mult=2,
    vae_decoder_register_tokens=1,
    audio_encoder_dim=1,
    audio_latent_dim=32,
    audio_decoder_dim=32,
    audio_heads=1,
    audio_dilations=(1,),
)
