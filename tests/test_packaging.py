import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAPPED = {"apps", "cache_policies", "eval"}  # folders at the root that install below videoinfer
ROOMS = MAPPED | {"videoinfer"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    """What RECORD lists of a wheel built from a copy of the checkout (a build leaves files where it runs)."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ROOMS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    readme = ROOT / "README.md"
    (source / "README.md").write_text(readme.read_text() if readme.exists() else "")
    script = f"from setuptools import build_meta; build_meta.build_wheel({str(target)!r})"
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        lines = archive.read(record).decode().splitlines()
        assert (
            "videoinfer = videoinfer.apps.cli:main"
            in archive.read(record.replace("RECORD", "entry_points.txt")).decode()
        )
    return [line.rsplit(",", 2)[0] for line in lines]


def checkout() -> list[tuple[str, str]]:
    """Every file of the rooms: where it lies, and where it must install."""
    files = []
    for room in sorted(ROOMS):
        for path in sorted((ROOT / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                here = path.relative_to(ROOT).as_posix()
                files.append((here, f"videoinfer/{here}" if room in MAPPED else here))
    return files


def test_nothing_installs_outside_videoinfer(wheel):
    assert wheel
    assert [path for path in wheel if not path.startswith("videoinfer")] == []
    assert {path.split("/")[0] for path in wheel if ".dist-info/" not in path} == {"videoinfer"}


def test_all_code_weights_and_recipes_are_in_the_wheel(wheel):
    must = [
        (here, there)
        for here, there in checkout()
        if here.endswith((".py", "py.typed")) or "weights" in Path(here).parts or "recipes" in Path(here).parts
    ]
    assert len(must) > 20
    missing = [here for here, there in must if there not in wheel]
    assert missing == [], "not shipped: add the folder to [tool.setuptools] in pyproject.toml"


def test_the_model_card_ships(wheel):
    for here, there in checkout():
        if here.startswith("videoinfer/demo/") and here.endswith((".md", ".txt")):
            assert there in wheel


def test_no_code_at_the_root_is_left_out():
    """A new folder with code must be a room (and then be named in pyproject.toml), or be the tests."""
    ignored = {"build", "dist", "out"}
    folders = {path.parent.name for path in ROOT.glob("*/*.py") if not path.parent.name.startswith(".")} - ignored
    assert folders <= ROOMS | {"tests"}


def test_root_folders_are_no_import_roots():
    """`kernels` is Hugging Face's package, which diffusers imports; neither it nor its like may resolve to ours."""
    script = (
        "import importlib.util as u\n"
        "for name in ('kernels', 'apps', 'loras', 'cache_policies', 'eval'):\n"
        "    spec = u.find_spec(name)\n"
        "    print(name, [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])])\n"
    )
    # -P, as everywhere in this project: the working directory is not put on the path
    command = [sys.executable, "-P", "-c", script]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5
    assert str(ROOT) + "/" not in done.stdout.replace(str(Path(sys.prefix)), "")


def test_kernels_is_not_ours_in_this_process():
    module = sys.modules.get("kernels")
    origin = getattr(module, "__file__", None) or ""
    assert not origin.startswith(f"{ROOT}/kernels")
