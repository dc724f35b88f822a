"""The suites: where somebody's tests come from, and how they are run on a server."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

from debian import Debian
from servers import Server

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target" / "suites"
SUITE_SECONDS = 3 * 3600
PYTEST = "pytest==9.0.2"
# The one that has pgx 5.
DEBIAN = Debian(WORK / "debian", "forky")


@dataclass
class Suite:
    """Somebody's tests."""

    name: str
    # Why tests differ whose names match an expression, by way; what holds directly holds for a pool.
    expected: dict = field(default_factory=dict)
    # SQL that the database needs first.
    before: list = field(default_factory=list)

    @property
    def directory(self):
        return WORK / self.name

    def prepare(self):
        """Fetches what is not there, or is there in another version; all or nothing."""
        ready, wanted = self.directory / "ready", repr(self.fetched())
        if ready.exists() and ready.read_text() == wanted:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        print(f"{self.name}: fetching", flush=True)
        self.fetch()
        ready.write_text(wanted)

    def outcomes(self, where: str, server: Server):
        """Runs the tests; returns what came of each."""
        for sql in self.before:
            server.psql(sql)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        with (self.directory / f"{where}.log").open("w") as log:
            found = self.run(where, server, environment, log)
        if "passed" not in found.values():
            sys.exit(f"{self.name}: no test passes, see {log.name}")
        return found

    def command(self, words, environment, log, **more):
        """Runs a program. That tests fail is no failure of it."""
        subprocess.run(
            words, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=SUITE_SECONDS, **more
        )  # fmt: skip


@dataclass
class Pytest(Suite):
    """Tests of a driver in Python, run in an environment with the driver as PyPI has it."""

    # What pip installs.
    install: list = field(default_factory=list)
    # The source distribution on PyPI that has the tests.
    source: str = ""
    # What of the source is taken along; its other directories may hide what was installed.
    parts: list = field(default_factory=list)
    arguments: object = lambda server: []
    environment: object = lambda server: server.environment()

    def fetched(self):
        return [PYTEST, *self.install, self.source, *self.parts]

    def fetch(self):
        venv.create(self.directory / "venv", with_pip=True)
        pip = [self.directory / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", PYTEST, *self.install], check=True)
        unpacked = self.directory / "unpacked"
        # Only this one from source: what builds it may come built.
        only = self.source.split("=")[0]
        download = ["download", "--no-deps", "--no-binary", only, "--dest", self.directory, self.source]
        subprocess.run([*pip, *download], check=True)
        with tarfile.open(next(self.directory.glob("*.tar.gz"))) as archive:
            archive.extractall(unpacked, filter="data")
        source = next(unpacked.iterdir())
        (self.directory / "tests").mkdir()
        for part in self.parts:
            (source / part).rename(self.directory / "tests" / part)
        shutil.rmtree(unpacked)

    def run(self, where, server, environment, log):
        report = self.directory / f"{where}.xml"
        report.unlink(missing_ok=True)
        command = [self.directory / "venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["--junitxml", report, *self.arguments(server)]
        self.command(command, environment | self.environment(server), log, cwd=self.directory / "tests")
        found = {}
        for case in xml.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")
            found[f"{case.get('classname')}::{case.get('name')}"] = outcome
        return found


@dataclass
class GoTest(Suite):
    """Tests of a driver in Go, as Debian has it, built by Debian's Go with what Debian has of other modules."""

    packages: list = field(default_factory=list)
    # The path that the driver is imported by.
    module: str = ""
    environment: object = lambda server: server.environment()

    def fetched(self):
        return self.packages

    def fetch(self):
        DEBIAN.packages(self.packages, self.directory / "root")

    def run(self, where, server, environment, log):
        root = self.directory / "root"
        code = root / "usr/share/gocode"
        go = next(root.glob("usr/lib/go-*"))
        environment |= {"GO111MODULE": "off", "GOPATH": str(code), "GOCACHE": str(self.directory / "cache")}
        # What is fetched is Debian's alone.
        environment |= {"GOROOT": str(go), "GOTOOLCHAIN": "local", "GOPROXY": "off"}
        environment |= self.environment(server)
        # One package at a time: some tests count the sessions of the server.
        test = [go / "bin/go", "test", "-json", "-count=1", "-p=1", "./..."]
        self.command(test, environment, log, cwd=code / "src" / self.module)
        found = {}
        kinds = {"pass": "passed", "fail": "failure", "skip": "skipped"}
        for line in Path(log.name).read_text().splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("Action") in kinds and "Test" in event:
                found[f"{event['Package']}::{event['Test']}"] = kinds[event["Action"]]
        return found
