"""Where the workers are: processes of this machine, a Ray cluster, Slurm jobs."""

# What the numerical libraries read when they are first imported.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
