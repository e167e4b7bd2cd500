"""Where the workers are: processes of this machine, a Ray cluster, Slurm jobs."""
