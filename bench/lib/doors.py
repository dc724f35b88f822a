"""Ways to one and the same server of a branch: its socket, PgBouncer, HAProxy, Coppice."""

import contextlib
import glob
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

from lib.client import Connection
from lib.coppice import Platform
from lib.measure import percentile

TICKS = os.sysconf("SC_CLK_TCK")
CLIENTS_MAX = 12000
SESSIONS = 200


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port):
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit(f"nobody listens on port {port}")


class Door:
    """A way to the branch's server: where it is, as whom, and whose processor time it takes."""

    def __init__(self, name, host, port, user, password, pid=None):
        self.name, self.host, self.port, self.user, self.password = name, host, port, user, password
        self.pid = pid

    def cpu_seconds(self):
        if self.pid is None:
            return 0.0
        fields = open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self):
        if self.pid is None:
            return 0
        return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{self.pid}/status").read()).group(1)) * 1024

    def environment(self, tls=False):
        """What libpq's programs come in by."""
        return dict(os.environ, PGHOST=self.host, PGPORT=str(self.port), PGUSER=self.user, PGPASSWORD=self.password,
                    PGDATABASE="app", PGSSLMODE="require" if tls else "disable")

    def connect(self, source=None):
        is_socket = self.host.startswith("/")
        address = f"{self.host}/.s.PGSQL.{self.port}" if is_socket else (self.host, self.port)
        return Connection(address, self.user, self.password, "app", source)

    def pgbench(self, *arguments, tls=False):
        run = subprocess.run(["pgbench", *arguments], env=self.environment(tls), capture_output=True, text=True,
                             check=False)
        if run.returncode != 0:
            raise SystemExit(f"pgbench through {self.name} failed:\n{run.stderr[-2000:]}")
        return run.stdout

    def measure(self, load, seconds, tls):
        """Transactions a second, p99 in milliseconds, and microseconds of the proxy for each transaction."""
        # The time begins before its clients are connected, thousands of which take some.
        seconds += int(load[load.index("-c") + 1]) // 100
        with tempfile.TemporaryDirectory() as logs:
            before = self.cpu_seconds()
            said = self.pgbench(*load, "-n", "-T", str(seconds), "-l", "--sampling-rate=0.05",
                                f"--log-prefix={logs}/log", tls=tls)
            used = self.cpu_seconds() - before
            times = [int(line.split()[2]) / 1000 for file in glob.glob(logs + "/log*") for line in open(file)]
        tps = float(re.search(r"tps = ([0-9.]+)", said).group(1))
        count = int(re.search(r"actually processed: (\d+)", said).group(1))
        return {"tps": tps, "p99_ms": percentile(times, 0.99) if times else 0.0, "cpu_us": used * 1e6 / count}


class Proxies:
    """PgBouncer in both modes, and HAProxy, in front of a server's socket."""

    def __init__(self, directory, branch, socket_directory, certificate):
        self.directory, self.branch, self.sockets = directory, branch, socket_directory
        self.certificate = certificate
        # Who may reach the socket.
        self.account = os.stat(socket_directory + "/.s.PGSQL.5432").st_uid
        self.processes = []

    def _run(self, *command):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process.pid

    def pgbouncer(self, mode):
        port, home = free_port(), f"{self.directory}/pgbouncer-{mode}"
        os.makedirs(home)
        for kind in ("crt", "key"):
            shutil.copy(f"{self.certificate}/gateway.{kind}", home)
        user, password = "app", self.branch["password"]
        with open(home + "/users.txt", "w") as file:
            file.write(f'"{user}" "{password}"\n')
        with open(home + "/pgbouncer.ini", "w") as file:
            file.write(f"""[databases]
app = host={self.sockets} dbname=app
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {home}/users.txt
pool_mode = {mode}
max_client_conn = {CLIENTS_MAX}
default_pool_size = {self.branch['pool'] if mode == 'transaction' else SESSIONS}
client_tls_sslmode = allow
client_tls_key_file = {home}/gateway.key
client_tls_cert_file = {home}/gateway.crt
ignore_startup_parameters = extra_float_digits
""")
        for path in [home, *glob.glob(home + "/*")]:
            os.chown(path, self.account, self.account)
        # It refuses to be root, and nobody else may walk to the socket.
        run = ["setpriv", "--reuid", str(self.account), "--regid", str(self.account), "--clear-groups",
               "--inh-caps", "+dac_override", "--ambient-caps", "+dac_override", "pgbouncer", home + "/pgbouncer.ini"]
        pid = self._run(*run)
        wait_for_port(port)
        return Door(f"pgbouncer, {mode}", "127.0.0.1", port, user, password, pid)

    def haproxy(self):
        port, path = free_port(), f"{self.directory}/haproxy.cfg"
        with open(path, "w") as file:
            file.write(f"""global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  maxconn 5000
listen proxy
  bind 127.0.0.1:{port}
  server one unix@{self.sockets}/.s.PGSQL.5432
""")
        pid = self._run("haproxy", "-db", "-f", path)
        wait_for_port(port)
        return Door("haproxy", "127.0.0.1", port, "app", self.branch["password"], pid)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def doors_of(program, postgres):
    """A platform with a branch, and every door to its server by name; all of it goes in the end."""
    directory = tempfile.mkdtemp(prefix="coppice-bench-")
    os.chmod(directory, 0o755)
    platform, proxies = None, None
    try:
        platform = Platform(os.path.abspath(program), f"{directory}/platform", postgres)
        configuration = {"region": "local", "instanceType": "small", "image": "postgres:17",
                         "postgresConfigurationParameters": {"max_connections": str(SESSIONS)}}
        made = platform._create({"name": "measured", "mode": "custom", "configuration": configuration})
        path = f"/projects/{platform.project}/branches/{made['id']}/credentials"
        password = platform.call("GET", path)["password"]
        sockets = glob.glob(f"/run/coppice/*/{made['id']}-1/socket")[0]
        proxies = Proxies(directory, {"password": password, "pool": SESSIONS // 2}, sockets, f"{directory}/platform/tls")
        host, port = platform.gateway
        user = f"app.{made['id']}"
        yield {
            "direct": Door("direct, socket", sockets, 5432, "app", password),
            "session": proxies.pgbouncer("session"),
            "transaction": proxies.pgbouncer("transaction"),
            "haproxy": proxies.haproxy(),
            "coppice": Door("coppice", host, port, user, password, platform.pid),
            "pooled": Door("coppice, pooled", host, port, f"{user}-pooler", password, platform.pid),
        }
    finally:
        if proxies:
            proxies.stop()
        if platform:
            platform.stop()
        shutil.rmtree(directory, ignore_errors=True)
