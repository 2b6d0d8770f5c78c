"""A study: a search for the draft schedule that serves a list of loads best, and its proof on fresh seeds.

Reading order: space (what is searched), arms (a point of it as configurations), objective (rows -> a value),
search (what to try next; the only import of Optuna), window (trials side by side), verdict (fresh seeds),
sensitivity, export, command (all of it in order).
"""
