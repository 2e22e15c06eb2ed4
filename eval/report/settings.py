"""The settings that a method is measured with when its name is given alone.

`{half}` and its like are shares of the run's forwards. The values are those that the methods' authors ship for video
models of this kind, with weaker and stronger ones around them.
"""

SHARES = {"two_thirds": 2 / 3, "half": 1 / 2, "third": 1 / 3, "quarter": 1 / 4}

# By method: what is shipped first, then the rest of the sweep. An empty text is the name alone.
SETTINGS: dict[str, tuple[str, ...]] = {
    "dense": ("",),
    "fewer-steps": (
        *("@{half}", "@{two_thirds}", "@{third}", "@{quarter}"),
        *("@{half},solver=ab2", "@{third},solver=ab2", "@{half},shift=6", "@{half},shift=20"),
    ),
    "fixed-interval": ("@2", "@3", "@4"),
    "static": ("@{half}", "@{two_thirds}", "@{third}", "@{quarter}", "@{half},order=1", "@{half},level=output"),
    "first-block": ("@0.1", "@0.05", "@0.15", "@0.2", "@0.3"),
    "teacache": ("@0.15", "@0.08", "@0.3", "@0.5"),
    "magcache": ("@0.06", "@0.12", "@0.24", "@0.24,max_skips=5"),
    "easycache": ("@0.05", "@0.025", "@0.1", "@0.2"),
    "dicache": ("@0.1", "@0.05", "@0.2", "@0.4"),
    "taylorseer": ("@4", "@2", "@3", "@6", "@4,order=2"),
    "seacache": ("@0.25", "@0.15", "@0.4", "@0.4,max_skips=4"),
    "cache-dit": (
        ":F1B0W4MC3R0.08",
        ":F1B0W4MC3R0.04",
        ":F1B0W4MC3R0.12",
        ":F1B0W4MC3R0.24",
        ":F1B0W4MC1R0.12",
        ":F2B0W4MC3R0.12",
        ":F1B0W4MC3R0.12TS1",
        ":F1B0W4MC3R0.24SCM@{half}",
    ),
}


def settings_of(method: str, steps: int, sweep: bool) -> list[str]:
    """The names with settings of a bare method (a key of SETTINGS) on runs of `steps` forwards, each once: one that is
    shipped, or with `sweep` all."""
    shares = {name: max(2, round(share * steps)) for name, share in SHARES.items()}
    texts = SETTINGS[method] if sweep else SETTINGS[method][:1]
    return list(dict.fromkeys(method + text.format(**shares) for text in texts))
