"""Where the instances of a model run: the box, the plan, and the worker processes."""
