"""Sweeps: a few lists become runs, which are trained anywhere and continue after any interruption.

The walk: `plan.expand` (which runs there are), `plan.tasks_left` (which are left, in populations), `conduct.run_sweep`
(keeps the workers of an executor busy), `tasks.work` (what a worker does), `bsrs.run.run` (training). Each of them
knows how a run is going from its folder alone: nothing else has to survive.
"""
