"""A Slurm cluster of one node on this machine: munged, slurmctld and slurmd, with all they write in one folder."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

CONFIG = """
ClusterName=bsrs
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller_port}
SlurmdPort={node_port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=1
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class NoSlurm(Exception):
    """Why there can be no cluster here."""


class SlurmCluster:
    """Started when it is made; `env` is what its users' commands need."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
        if missing:
            raise NoSlurm(f"{', '.join(missing)} not installed (Debian: apt-get install slurm-wlm munge)")
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise

    def run(self, *command: str) -> str:
        """The output of one of Slurm's commands."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise NoSlurm(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """Its jobs end first: daemons that stop leave them running."""
        if len(self._processes) == 3:
            self._end_jobs()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _end_jobs(self) -> None:
        try:
            self.run("scancel", "--user", getpass.getuser())
            until = time.monotonic() + 30
            while self.run("squeue", "--noheader", "--format=%i").split() and time.monotonic() < until:
                time.sleep(0.2)
        except (NoSlurm, subprocess.TimeoutExpired):  # a daemon is dead: there is nobody to ask
            return

    def _configure(self) -> None:
        for name in ("state", "spool"):
            (self._folder / name).mkdir()
        ports = dict(zip(("controller_port", "node_port"), _free_ports(2), strict=True))
        host = socket.gethostname().split(".")[0]
        config = CONFIG.format(folder=self._folder, user=getpass.getuser(), host=host, **ports)
        (self._folder / "slurm.conf").write_text(config)
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # loaded though nothing here uses it
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)

    def _start(self) -> None:
        folder = self._folder
        self._spawn(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munge.pid",
            f"--log-file={folder}/munge.log",
            f"--seed-file={folder}/munge.seed",
        )
        self._wait_until(lambda: (folder / "munge.socket").exists())
        self._spawn("slurmctld", "-D", "-f", f"{folder}/slurm.conf")
        self._spawn("slurmd", "-D", "-f", f"{folder}/slurm.conf")
        self._wait_until(lambda: "idle" in self._states())

    def _spawn(self, *command: str) -> None:
        with (self._folder / f"{command[0]}.out").open("wb") as out:
            self._processes.append(subprocess.Popen(command, env=self.env, stdout=out, stderr=out))

    def _states(self) -> str:
        try:
            return self.run("sinfo", "--noheader", "--format=%T")
        except NoSlurm:
            return ""

    def _wait_until(self, condition: object) -> None:
        assert callable(condition)
        until = time.monotonic() + 60
        while not condition():
            dead = [process for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > until:
                name = Path(str((dead or self._processes)[-1].args[0])).name  # type: ignore[index]
                log = (self._folder / f"{name}.out").read_text(errors="replace").strip().splitlines()
                raise NoSlurm(f"{name} cannot run here: {log[-1] if log else 'it says nothing'}")
            time.sleep(0.1)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
