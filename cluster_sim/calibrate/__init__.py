"""`calibrate`: what a user measured becomes an acceptance profile and a scaled bundle, each with an interval.

Read in this order. Files: entries.py (JSON), page.py (a scrape of /metrics), growth.py (two of them).
Drafts: bench.py, draft_counters.py and sglang.py (what each kind of file counts), counts.py (verifications
and acceptances), mixed.py (drafts of several lengths), acceptance.py and profile.py (the profile). Times:
timed.py (traffic and mean latencies), bench_times.py, server_load.py, server_times.py, length_buckets.py and
sglang_times.py (what each kind of file tells of them), points.py (a measurement as a configuration), parts.py
(the bundle's parts), timing.py and least_squares.py (the fit). All of it: measured.py (the files),
calibration.py, command.py (the command line), output.py (the files that it leaves).
"""
