"""Benchmarks and quality measurements; run them as `python -P -m videoinfer.eval.<name>`."""
