"""Exact theory on tables: MDPs, operators, solvers, limits, sampled learning."""
