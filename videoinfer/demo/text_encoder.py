"""The text side of the embedded model: tokenizer, processor and a frozen random Qwen3-VL conditioner.

MiniMax-H3 reads `hidden_states[50]` of its conditioner, so even a toy needs 51 decoder layers. They are narrow, random
and never trained: their only task is to keep words apart and to add a little context to each word.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from transformers import Qwen2Tokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
VISION_PATCH = 16
VISION_MERGE = 2


def _learn_merges(pieces: Sequence[str]) -> list[tuple[str, str]]:
    """Byte-pair merges that reduce every piece to one symbol, most frequent pair first (ties: smaller pair)."""
    sequences = [list(piece) for piece in pieces]
    merges: list[tuple[str, str]] = []
    while True:
        counts = Counter(pair for symbols in sequences for pair in pairwise(symbols))
        if not counts:
            return merges
        left, right = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append((left, right))
        for symbols in sequences:
            i = 0
            while i < len(symbols) - 1:
                if symbols[i] == left and symbols[i + 1] == right:
                    symbols[i : i + 2] = [left + right]
                i += 1


def make_tokenizer(words: Iterable[str]) -> Qwen2Tokenizer:
    """Byte-level BPE in which every given word is one token, at the start of a text and after a space alike.

    Any other text is still encoded, byte by byte at worst. Digits stay single tokens (Qwen splits numbers).
    """
    words = sorted(set(words))
    byte_symbols = bytes_to_unicode()

    def spelled(text: str) -> str:
        return "".join(byte_symbols[byte] for byte in text.encode("utf-8"))

    merges = _learn_merges([spelled(prefix + word) for word in words for prefix in ("", " ")])
    vocab: dict[str, int] = {}
    for symbol in [*sorted(byte_symbols.values()), *(left + right for left, right in merges), *SPECIAL_TOKENS]:
        vocab.setdefault(symbol, len(vocab))
    tokenizer = Qwen2Tokenizer(vocab=vocab, merges=merges, eos_token="<|im_end|>", pad_token="<|endoftext|>")  # type: ignore[arg-type]
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    return tokenizer


def make_processor(tokenizer: Qwen2Tokenizer) -> Qwen3VLProcessor:
    """Qwen3-VL's processor: a picture of 96x160 pixels becomes 3x5 vision tokens (patch 16, merge 2), no resize."""
    cell = (VISION_PATCH * VISION_MERGE) ** 2
    size = {"shortest_edge": cell, "longest_edge": cell * 4096}
    geometry = {"size": size, "patch_size": VISION_PATCH, "merge_size": VISION_MERGE, "temporal_patch_size": 2}
    # Qwen3-VL normalises to [-1, 1]; the image processor is shared with Qwen2-VL, whose default is CLIP's statistics.
    half = [0.5, 0.5, 0.5]
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(image_mean=half, image_std=half, **geometry),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(cap_pixels_per_frame=False, **geometry),
    )


def _spread_apart(vectors: torch.Tensor, steps: int = 300) -> torch.Tensor:
    """Unit vectors (N, width) pushed apart until no pair is close; the largest |cosine| approaches the Welch bound."""
    vectors = nn.Parameter(vectors.clone())
    optimizer = torch.optim.Adam([vectors], lr=0.03)
    off_diagonal = 1.0 - torch.eye(len(vectors))
    for _ in range(steps):
        cosines = nn.functional.normalize(vectors, dim=1) @ nn.functional.normalize(vectors, dim=1).T * off_diagonal
        loss = (cosines**8).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return nn.functional.normalize(vectors.detach(), dim=1)


def _word_vectors(
    tokenizer: Qwen2Tokenizer, words: Iterable[str], width: int, generator: torch.Generator
) -> torch.Tensor:
    """One vector of norm sqrt(width) per token (vocab, width): words far apart, ` word` and `word` the same."""
    table = nn.functional.normalize(torch.randn(len(tokenizer), width, generator=generator), dim=1)
    pairs = [[tokenizer(form, add_special_tokens=False)["input_ids"] for form in (w, " " + w)] for w in words]
    # A word that is no letter run (digits, punctuation) may stay several tokens; those keep their random vectors.
    rows = [[bare[0], spaced[0]] for bare, spaced in pairs if len(bare) == len(spaced) == 1]
    if rows:
        apart = _spread_apart(table[[bare for bare, _ in rows]])
        for row, vector in zip(rows, apart, strict=True):
            table[row] = vector
    return table * width**0.5


@torch.no_grad()
def _initialise(model: Qwen3VLForConditionalGeneration, residual_gain: float, generator: torch.Generator) -> None:
    """Variance-preserving random weights; every residual branch of the decoder writes `residual_gain` per layer."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        elif name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim >= 2:
            fan_in = parameter[0].numel()
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan_in**-0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.mul_(residual_gain)
            if "pos_embed" in name or ("deepstack" in name and name.endswith("fc2.weight")):
                parameter.mul_(0.3)


def make_text_encoder(
    tokenizer: Qwen2Tokenizer,
    words: Iterable[str],
    width: int,
    head_dim: int,
    ffn_dim: int,
    vision_width: int,
    seed: int = 0,
    num_layers: int = 51,
    residual_gain: float = 0.06,
) -> Qwen3VLForConditionalGeneration:
    """A frozen random Qwen3-VL of `num_layers` decoder layers, float32; hidden states (1, tokens, width), unit scale.

    `words` are the words whose vectors are pushed apart; every other token gets a random vector.
    """
    ids = tokenizer.get_vocab()
    half = head_dim // 2
    side = half // 4
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": ffn_dim,
            "num_hidden_layers": num_layers,
            "num_attention_heads": width // head_dim,
            "num_key_value_heads": max(1, width // head_dim // 2),
            "head_dim": head_dim,
            "max_position_embeddings": 32768,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_section": [half - 2 * side, side, side],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 1,
            "hidden_size": vision_width,
            "intermediate_size": 2 * vision_width,
            "num_heads": 2,
            "patch_size": VISION_PATCH,
            "spatial_merge_size": VISION_MERGE,
            "out_hidden_size": width,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    generator = torch.Generator().manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config)
    _initialise(model, residual_gain, generator)
    vectors = _word_vectors(tokenizer, sorted(set(words)), width, generator)
    embeddings: Any = model.get_input_embeddings()
    embeddings.weight.data.copy_(vectors)
    model.requires_grad_(False)
    return model.eval()
