"""The platform under measurement."""

import glob
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse

from lib.client import Connection, ServerError


def end(*_):
    """Who is told to end still takes down what it has set up, and is told so once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


signal.signal(signal.SIGTERM, end)


class Platform:
    def __init__(self, program, directory, postgres_dirs, flags=(), pool_gib=12):
        self.program, self.directory = program, directory
        environment = dict(os.environ, COPPICE_POSTGRES_DIRS=postgres_dirs, COPPICE_LOG="warn")
        self.log = open(directory + ".log", "w+")
        self.process = subprocess.Popen(
            [program, "serve", "--data-dir", directory, "--listen", "127.0.0.1:0",
             "--gateway-listen", "127.0.0.1:0", "--pool-size-gib", str(pool_gib), "--branches-per-project", "5000",
             "--branches-per-organization", "5000", "--branches-per-hour", "50000",
             "--requests-per-second", "1000000", *flags],
            stdout=self.log, stderr=self.log, env=environment, stdin=subprocess.DEVNULL)
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self):
        deadline = time.monotonic() + 180
        while "coppice is ready" not in open(self.log.name).read():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("coppice did not start:\n" + open(self.log.name).read())
            time.sleep(0.05)
        record = json.load(open(self.directory + "/serve.json"))
        pairs = (line.strip().split("=", 1) for line in open(self.directory + "/admin.env"))
        admin = dict(pairs)
        self.key, self.organization = admin["COPPICE_API_KEY"], admin["COPPICE_ORGANIZATION"]
        self.url = "http://" + record["api"]
        self.api = http.client.HTTPConnection(record["api"], timeout=600)
        self.used = time.monotonic()
        host, port = record["gateway"].rsplit(":", 1)
        self.gateway = (host, int(port))
        self.pid = record["pid"]
        self.project = self.call("GET", "/projects")["projects"][0]["id"]

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        text = json.dumps(body) if body is not None else None
        # A server closes what nobody uses; a measured call is the second one on its connection.
        if time.monotonic() - self.used > 20 and method != "GET":
            self.api.close()
            self.call("GET", "/projects")
        self.used = time.monotonic()
        self.api.request(method, f"/organizations/{self.organization}{path}", text, headers)
        response = self.api.getresponse()
        data = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {data.decode()}")
        return json.loads(data) if data else None

    def base(self, name, image="postgres:15"):
        configuration = {"region": "local", "instanceType": "micro", "image": image}
        return self._create({"name": name, "mode": "custom", "configuration": configuration})

    def child(self, name, parent):
        return self._create({"name": name, "mode": "inherit", "parentID": parent["id"]})

    def _create(self, body):
        return self.call("POST", f"/projects/{self.project}/branches", body)

    def connect(self, branch):
        url = urllib.parse.urlparse(branch["connectionString"])
        return Connection(self.gateway, url.username, url.password, url.path[1:])

    def superuser(self, branch):
        """A session past the gateway, as root may open one on the server's machine."""
        sockets = glob.glob(f"/run/coppice/*/{branch['id']}-1/socket/.s.PGSQL.5432")
        return Connection(sockets[0], "platform", "", "postgres")

    def change(self, branch, body):
        self.call("PATCH", f"/projects/{self.project}/branches/{branch['id']}", body)

    def hibernate(self, branch):
        """Returns when the branch sleeps."""
        self.change(branch, {"hibernate": True})
        path = f"/projects/{self.project}/branches/{branch['id']}"
        while self.call("GET", path)["status"]["statusType"] != "STATUS_TYPE_HIBERNATED":
            time.sleep(0.01)

    def metastore(self):
        """Directory of the metastore's socket; root may sign in there as `platform`."""
        installation = json.load(open(self.directory + "/installation.json"))
        sockets = glob.glob("/run/coppice/*/metastore/socket")
        for socket in sockets:
            try:
                connection = Connection(socket + "/.s.PGSQL.5432", "platform", "", "coppice")
                found = connection.ask("SELECT id FROM installation")
                connection.close()
            except (OSError, ServerError):
                # Left by a server that was killed, or another platform's that has just begun.
                continue
            if found in installation.values():
                return socket
        raise RuntimeError("the metastore is not running")

    def delete(self, branch):
        self.call("DELETE", f"/projects/{self.project}/branches/{branch['id']}")

    def stop(self):
        subprocess.run([self.program, "stop", "--all", "--data-dir", self.directory],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.process.wait()
