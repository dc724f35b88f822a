"""The two servers that a suite meets: a bare one, and the gateway of a platform."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 120
# How a suite may come through the gateway, and what stands behind the name of the user then.
WAYS = {"direct": "", "pooled": "-pooler"}


@dataclass
class Server:
    """Where a suite connects."""

    host: str
    port: str
    user: str
    password: str
    database: str

    def environment(self):
        return {
            "PGHOST": self.host,
            "PGPORT": self.port,
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            "PGDATABASE": self.database,
        }

    def url(self, dialect):
        return f"{dialect}://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"

    def psql(self, sql):
        command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]
        subprocess.run(command, env=os.environ | self.environment(), check=True, stdout=subprocess.DEVNULL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def wait_for(what, holds):
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.1)
    sys.exit(f"{what}: not within {PATIENCE_SECONDS} s")


@contextlib.contextmanager
def bare_server(postgres):
    """A server of the release as initdb makes it, with the role that a branch has."""
    programs, port, password = postgres / "bin", free_port(), secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="coppice-suites-") as directory:
        data = Path(directory) / "data"
        account = []
        if os.geteuid() == 0:
            shutil.chown(directory, "nobody")
            account = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        initdb = [programs / "initdb", "-D", data, "-U", "boss", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        initdb += ["--text-search-config=english", "--auth=trust"]
        subprocess.run([*account, *initdb], check=True, stdout=subprocess.DEVNULL)
        (data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        settings = {"port": port, "unix_socket_directories": directory, "max_prepared_transactions": "20"}
        # Drivers take other paths with TLS, which the gateway has.
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "9"]
        request += ["-keyout", data / "server.key", "-out", data / "server.crt"]
        subprocess.run([*account, *request], check=True, stderr=subprocess.DEVNULL)
        (data / "server.key").chmod(0o600)
        settings |= {"listen_addresses": "127.0.0.1", "max_connections": "100", "timezone": "UTC"}
        settings |= {"ssl": "on", "fsync": "off"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = subprocess.Popen([*account, programs / "postgres", "-D", data, *options], stderr=subprocess.DEVNULL)
        try:
            boss = Server(directory, port, "boss", "", "postgres")
            ready = ["pg_isready", "-q", "-h", directory, "-p", port]
            wait_for("the bare server", lambda: subprocess.run(ready).returncode == 0)
            boss.psql(f"CREATE ROLE app LOGIN CREATEDB CREATEROLE PASSWORD '{password}'")
            boss.psql("GRANT pg_monitor, pg_signal_backend TO app")
            boss.psql("CREATE DATABASE app OWNER app")
            yield Server("127.0.0.1", port, "app", password, "app")
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def platform(program, postgres, way):
    """A platform with that release alone, and the role of a branch of it."""
    with tempfile.TemporaryDirectory(prefix="coppice-suites-") as directory:
        data = Path(directory) / "data"
        arguments = [program, "serve", "--data-dir", data, "--listen", "127.0.0.1:0"]
        arguments += ["--gateway-listen", "127.0.0.1:0", "--pool-size-gib", "2"]
        # Tests of refusals fail to sign in on purpose.
        arguments += ["--gateway-failures-per-minute", "1000000"]
        environment = os.environ | {"COPPICE_POSTGRES_DIRS": str(postgres)}
        log = (Path(directory) / "log").open("w+")
        server = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            is_ready = lambda: "coppice is ready" in Path(log.name).read_text()
            wait_for("the platform", lambda: server.poll() is not None or is_ready())
            if server.poll() is not None:
                sys.exit(Path(log.name).read_text())
            release = f"postgres:{postgres.name.split('.')[0]}"
            run = lambda *words: subprocess.run(
                [program, *words, "--data-dir", data], check=True, capture_output=True, text=True
            ).stdout
            run("branch", "create", "suite", "--image", release)
            url = run("connection-string", "suite").strip()
            user, rest = url.removeprefix("postgresql://").split(":", 1)
            password, place = rest.split("@")
            host, port = place.split("/")[0].split(":")
            # As short and plain as on the bare server: some tests make URLs of it by replacing letters.
            plain = secrets.token_hex(8)
            Server(host, port, user, password, "app").psql(f"ALTER ROLE app PASSWORD '{plain}'")
            yield Server(host, port, user + WAYS[way], plain, "app")
        finally:
            subprocess.run([program, "stop", "--all", "--data-dir", data], check=False, capture_output=True)
            server.wait()
