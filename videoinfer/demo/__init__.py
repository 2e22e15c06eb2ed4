"""The embedded model: a true MiniMax-H3 pipeline at toy size, its procedural world and its training recipe."""
