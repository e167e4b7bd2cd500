"""Benchmarks: ours beside the peers, in one run, interleaved. Ratios count; the machine's absolute speed does not."""
