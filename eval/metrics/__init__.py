"""How far a clip is from the one that the same request gives without a step cache, as plain functions."""
