"""A real Slurm over the hosts of a network: one to log in and control, the others to compute."""

import re
import secrets
import shutil
import subprocess

from waiting import wait_until

CONFIG = """
ClusterName=test
SlurmctldHost={login.name}({login.address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid

# This machine's few cores pass for several on each host, and its control groups are left alone.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none

# Losses are seen, and jobs placed, within seconds; those of several parts by the backfill loop.
SlurmdTimeout=5
SlurmctldTimeout=10
MessageTimeout=4
KillWait=2
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0

NodeName={nodes} CPUs=4 RealMemory=4000
{more}
PartitionName=main Nodes=ALL Default=YES
"""
TOOLS = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm"}
SECONDS = 60


def why_no_slurm() -> str | None:
    """What this machine lacks for Slurm, if anything."""
    lacking = [f"{t}, of the package {p}" for t, p in TOOLS.items() if not shutil.which(t)]
    return f"Slurm needs {lacking[0]}" if lacking else None


class Slurm:
    """Slurm's own daemons: munged and slurmctld at the login host, slurmd at each node."""

    def __init__(self, folder, login, nodes, more=""):
        """Starts nothing.

        Args:
            folder: For all that Slurm keeps; new.
            login: The host that controls, and computes nothing.
            nodes: The hosts that compute.
            more: Further lines of slurm.conf.
        """
        self.more = more
        self.folder, self.login, self.nodes = folder, login, nodes
        self.environment = {"SLURM_CONF": f"{folder}/slurm.conf"}
        self.controller = None

    def start(self):
        """Starts it, and waits until all nodes are idle."""
        (self.folder / "state").mkdir(parents=True)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        names = ",".join(node.name for node in self.nodes)
        text = CONFIG.format(login=self.login, folder=self.folder, nodes=names, more=self.more)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        kept = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("key", "pid", "seed")]
        socket = f"--socket={self.folder}/munge.socket"
        self._daemon(self.login, "munged", "--foreground", "--force", socket, *kept)
        self.start_controller("-c")
        for node in self.nodes:
            self._daemon(node, "slurmd", "-D")
        self.wait_nodes({node.name: "idle" for node in self.nodes})

    def start_controller(self, *options):
        """Starts slurmctld, which goes on where the last one stopped unless `-c` is given."""
        self.controller = self._daemon(self.login, "slurmctld", "-D", *options)

    def configure(self, name, value):
        """Changes a setting of the running cluster."""
        file = self.folder / "slurm.conf"
        file.write_text(re.sub(rf"(?m)^{name}=.*$", f"{name}={value}", file.read_text()))
        self.run("scontrol", "reconfigure")

    def power_off(self, node):
        """Takes a node's power and tells Slurm so; on its own it needs 15 seconds to find out."""
        node.power_off()
        self.run("scontrol", "update", f"nodename={node.name}", "state=down", "reason=no power")

    def power_on(self, node):
        """Boots a node that was powered off, which then joins again."""
        node.power_on()
        self._daemon(node, "slurmd", "-D")

    def run(self, *command, env=None, **options) -> subprocess.CompletedProcess:
        """Runs a command at the login host; options are those of `Host.run`."""
        return self.login.run(*command, env=self.environment | (env or {}), **options)

    def popen(self, *command, env=None, **options) -> subprocess.Popen:
        """Starts a process at the login host; options are those of `Host.popen`."""
        return self.login.popen(*command, env=self.environment | (env or {}), **options)

    def states(self) -> dict[str, str]:
        """Of each node, by name, such as `idle` or `down`; with a `*` where it does not answer."""
        told = self.run("sinfo", "--Node", "--noheader", "--format=%N %T").stdout
        return dict(line.split() for line in told.splitlines())

    def job(self, number) -> dict[str, str]:
        """What `scontrol show job` tells, such as `JobState` and `NodeList`."""
        told = self.run("scontrol", "--oneliner", "show", "job", number).stdout.splitlines()[0]
        return dict(re.findall(r"(\S+?)=(\S*)", told))

    def wait_nodes(self, states, seconds=SECONDS):
        """Waits until the named nodes have these states."""
        self._wait(lambda: states.items() <= self.states().items(), seconds)

    def wait_job(self, number, state="COMPLETED", seconds=SECONDS) -> dict[str, str]:
        """Waits until a job has a state; gives the job. One that ends otherwise fails the test."""

        def arrived():
            job = self.job(number)
            ended = job["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
            assert job["JobState"] == state or not ended, self._told(job)
            return job if job["JobState"] == state else None

        return self._wait(arrived, seconds)

    def _wait(self, condition, seconds):
        return wait_until(condition, seconds, lambda: self._told(self.run("squeue", "-l").stdout))

    def _told(self, what):
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join([str(what), str(self.states()), *(f.read_text()[-3000:] for f in logs)])

    def _daemon(self, host, *command):
        with (self.folder / f"{host.name}-{command[0]}.log").open("a") as log:
            environment = self.environment
            return host.popen(*command, env=environment, stdout=log, stderr=subprocess.STDOUT)
