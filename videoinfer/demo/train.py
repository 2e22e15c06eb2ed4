"""Make every weight file of the embedded model: `python -m videoinfer.demo.train all --work DIR`.

The parts are independent but for the first: `basis`, `decoder`, `encoder`, `audio`, `dit`, `package`. Each training
writes a checkpoint to the work folder every few minutes and goes on where it stopped; `package` writes the pipeline
folder from whatever the work folder holds. `--minutes` sets the training time of one part.
"""

import argparse
import json
from pathlib import Path

import torch
from diffusers import AutoencoderKLMiniMaxH3, MiniMaxH3Transformer3DModel

from .architecture import DEMO, make_components, make_transformer, write_pipeline_folder
from .train_audio_vae import train_audio_vae
from .train_conditions import TextStates
from .train_dit import start_dit, train_dit
from .train_video_decoder import load_basis, make_basis, start_at_basis, train_decoder
from .train_video_encoder import finish_encoder, train_encoder
from .trainer import load_average
from .world import HEIGHT, WIDTH, vocabulary

MINUTES = {"decoder": 85.0, "encoder": 8.0, "audio": 8.0, "dit": 150.0}
PARTS = ("basis", "decoder", "encoder", "audio", "dit", "package")
# What the embedded model was trained on; the engine refuses anything else.
FACTS = {"allowed_sizes": [[WIDTH, HEIGHT]], "default_size": [WIDTH, HEIGHT], "allowed_frames": [124, 209, 362]}


def fresh_components() -> dict:
    """All components before training. The frozen text encoder is rounded to bfloat16, as it is stored."""
    components = make_components(DEMO, vocabulary())
    components["text_encoder"] = components["text_encoder"].to(torch.bfloat16).float()
    return components


def package(work: Path, folder: Path) -> Path:
    """Put the averaged weights of every part together as a pipeline folder."""
    basis = load_basis(work / "basis.safetensors")
    components = fresh_components()
    vae, audio_vae, dit = (components[name] for name in ("vae", "audio_vae", "transformer"))
    load_average(vae, work / "decoder.safetensors")
    load_average(vae.encoder, work / "encoder.safetensors")
    finish_encoder(vae)
    vae.register_to_config(latents_std=tuple((1.0 / basis.scale).tolist()))
    load_average(audio_vae, work / "audio.safetensors")
    load_average(dit, work / "dit.safetensors")
    write_pipeline_folder(folder, components, DEMO, torch.bfloat16)
    (folder / "videoinfer.json").write_text(json.dumps(FACTS, indent=2) + "\n", encoding="utf-8")
    return folder


def make(part: str, work: Path, folder: Path, minutes: float | None, start: Path | None = None) -> None:
    """Run one part. `start`: the DiT or decoder begins at the weights of this pipeline folder, not at fresh ones."""
    torch.manual_seed(0)
    basis_file = work / "basis.safetensors"
    if part == "basis":
        make_basis(basis_file)
        return
    if part == "package":
        print(package(work, folder))
        return
    minutes = MINUTES[part] if minutes is None else minutes
    components = fresh_components()
    basis = load_basis(basis_file)
    if part == "decoder":
        vae = components["vae"]
        if start is None:
            start_at_basis(vae, basis)
        else:
            vae.load_state_dict(AutoencoderKLMiniMaxH3.from_pretrained(start, subfolder="vae").state_dict())
        train_decoder(vae, basis, work / "decoder.safetensors", minutes)
    elif part == "encoder":
        train_encoder(components["vae"], basis, work / "encoder.safetensors", minutes)
    elif part == "audio":
        train_audio_vae(components["audio_vae"], work / "audio.safetensors", minutes)
    else:
        states = TextStates(components["text_encoder"], components["tokenizer"], components["processor"])
        dit = make_transformer(DEMO)
        start_dit(dit)
        if start is not None:
            dit.load_state_dict(
                MiniMaxH3Transformer3DModel.from_pretrained(start, subfolder="transformer").state_dict()
            )
        train_dit(dit, states, basis, work / "dit.safetensors", minutes, further=start is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*PARTS, "all"))
    parser.add_argument("--work", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "weights", help="where `package` writes")
    parser.add_argument("--start", type=Path, help="pipeline folder whose DiT or decoder is trained further")
    parser.add_argument("--minutes", type=float, help="training time of this part")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for part in PARTS if arguments.part == "all" else (arguments.part,):
        make(part, arguments.work, arguments.folder, arguments.minutes, arguments.start)


if __name__ == "__main__":
    main()
