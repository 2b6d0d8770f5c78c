"""What a sweep compares its arms by: name -> its path in summary.json, and whether more of it is better."""

COMPARED = {
    "output_throughput_tok_s": ("output_throughput_tok_s", True),
    "ttft_p99_s": ("ttft_s.p99", False),
    "tpot_s": ("tpot_s.mean", False),
    "slo_goodput_rps": ("slo_goodput_rps", True),
}
SHOWN = ("output_throughput_tok_s", "tpot_s")  # unless a sweep chooses
