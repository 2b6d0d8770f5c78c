"""Results in the formats that other tools read, made from what is stored.

command.py      the command
source.py       what is read, and what it must hold
bench.py        one run as `vllm bench serve` writes it; bench_tree.py: a sweep as `vllm bench sweep` does
prometheus.py   vLLM's metrics; exposition.py: the format of their text
table.py        requests as CSV and JSON lines
timed_trace.py  the traffic, for `vllm bench serve` to replay
"""
