"""Axes in, axes out. What is drawn was computed by `stats`; here it gets ink."""
