"""Step-time bundles: the times of the parts of a step for one model on one GPU type; and memory.

Reading order: format (what a bundle is), sections, grids, assumptions, roofline (a bundle from facts),
memory.
"""
