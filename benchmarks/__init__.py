"""Benchmarks: ours next to the peers, in one run, interleaved. Ratios count; the machine's absolute speed does not."""
