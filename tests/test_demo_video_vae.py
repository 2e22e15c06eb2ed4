"""The tricks that the video VAE's training uses change nothing about the module that is shipped."""

import pytest
import torch

from videoinfer.demo.architecture import DEMO, TINY, make_vae
from videoinfer.demo.latents import CHANNELS, LAYOUT, fit_basis, normalise_pixels, patchify, still_latents
from videoinfer.demo.render import PICTURE_SIDE, paint, render
from videoinfer.demo.train_video_decoder import start_at_basis
from videoinfer.demo.train_video_encoder import finish_encoder, folded_forward, prepare_encoder, start_encoder
from videoinfer.demo.world import FPS, random_scene


@pytest.fixture(scope="module")
def basis():
    generator = torch.Generator().manual_seed(0)
    scenes = [random_scene(generator, held_out=None) for _ in range(20)]
    stills = torch.randint(0, 340, (20, 1), generator=generator).expand(-1, 4) / FPS
    return fit_basis(patchify(normalise_pixels(render(scenes, stills))).flatten(0, 3))


@pytest.mark.parametrize("frames", [1, 2, 5, 17])
def test_folded_convolutions_equal_conv3d(frames):
    vae = make_vae(TINY).encoder.eval()
    pixels = torch.randn(2, 3, frames, 32, 48)
    with torch.no_grad():
        for name, conv in vae.named_modules():
            if type(conv).__name__ == "MiniMaxH3VideoCausalConv3d":
                given = torch.randn(2, conv.in_channels, frames, 9, 12)
                torch.testing.assert_close(folded_forward(conv)(given), conv(given), atol=1e-5, rtol=1e-4, msg=name)
        assert vae(pixels).shape[2] == -(-frames // 4)


def test_the_encoder_starts_at_the_pixel_channels_and_skips_only_zeros(basis):
    torch.manual_seed(0)
    vae = make_vae(DEMO).eval()
    start_encoder(vae, basis)
    generator = torch.Generator().manual_seed(5)
    scenes = [random_scene(generator, held_out=None) for _ in range(3)]
    place = torch.tensor([[40.0], [50.0], [60.0]])
    latents, cover = still_latents(scenes, place, place, torch.full((3, 1), 18.0), basis)
    pixels = normalise_pixels(paint(scenes, cover)).permute(0, 4, 1, 2, 3)
    with torch.no_grad():
        whole = vae.encoder(pixels)
        prepare_encoder(vae)
        torch.testing.assert_close(vae.encoder(pixels), whole, atol=1e-4, rtol=1e-4)
    error = ((whole[:, LAYOUT:CHANNELS].permute(0, 2, 3, 4, 1) - latents[..., LAYOUT:]) * basis.scale[LAYOUT:]).square()
    assert float(error.mean()) < 0.1 * float((latents[..., LAYOUT:] * basis.scale[LAYOUT:]).square().mean())


def test_the_finished_posterior_is_the_encoders_first_channels():
    vae = make_vae(TINY).eval()
    finish_encoder(vae)
    pixels = torch.randn(1, 3, 1, PICTURE_SIDE, PICTURE_SIDE)
    with torch.no_grad():
        posterior = vae.encode(pixels).latent_dist
        torch.testing.assert_close(posterior.mean, vae.encoder(pixels)[:, :CHANNELS], atol=1e-5, rtol=1e-5)
    assert float(posterior.std.max()) < 1e-5


def test_the_decoder_starts_at_the_inverse_of_the_basis(basis):
    torch.manual_seed(0)
    vae = make_vae(DEMO).eval()
    start_at_basis(vae, basis)
    for block in vae.decoder.transformer_blocks:
        block.scale1.data.zero_(), block.scale2.data.zero_()
    generator = torch.Generator().manual_seed(6)
    scenes = [random_scene(generator, held_out=None)]
    target = normalise_pixels(render(scenes, torch.zeros(1, 4)))
    whitened = basis.project(patchify(target))
    latents = torch.cat([torch.zeros(*whitened.shape[:-1], LAYOUT), whitened], -1).permute(0, 4, 1, 2, 3)
    with torch.no_grad():
        decoded = vae.decoder(vae.post_quant_conv(latents)).permute(0, 2, 3, 4, 1)
    assert float((decoded - target).square().mean() / (target - target.mean()).square().mean()) < 0.35
