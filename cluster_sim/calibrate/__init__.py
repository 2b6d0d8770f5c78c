"""`calibrate`: what a user measured becomes an acceptance profile and a scaled bundle, each with an interval.

Read in this order: entries.py (JSON of files), bench.py, scrapes.py and sglang.py (what they hold), counts.py
(verifications and acceptances), mixed.py (drafts of several lengths), acceptance.py (the profile); points.py
(a measured run as a configuration), parts.py (the bundle's parts), timing.py (the fit); calibration.py (all
of it), command.py (the command line), output.py (the files).
"""
