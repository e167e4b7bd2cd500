"""Sweeps: expand a few lists into runs, carry them out anywhere, and go on after any interruption.

`plan` says which runs there are, `tasks` what one worker does, `executors` where the workers are, and `schedule`
keeps them busy. All of them know how a run is going from its folder alone: nothing else has to survive.
"""
