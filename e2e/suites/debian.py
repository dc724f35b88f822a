"""Packages of Debian, fetched by apt-get and unpacked instead of installed.

The release may be another one than the machine's: its lists are kept apart, in the
directory that everything goes to.
"""

import shutil
import subprocess
import sys
from pathlib import Path

# Debian's own, of the package debian-archive-keyring.
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Debian:
    """A release of Debian, as the mirror of this machine has it."""

    def __init__(self, directory: Path, release: str):
        self.directory, self.release = directory, release
        self.is_updated = False

    def apt_get(self, *words, cwd=None):
        """apt-get with lists of our own. As root it would fetch under an account that can't write here."""
        places = {"Dir::Etc::sourcelist": self.directory / "sources.list", "Dir::Etc::sourceparts": "-"}
        places |= {"Dir::State::lists": self.directory / "lists", "Dir::Cache": self.directory / "cache"}
        places |= {"APT::Sandbox::User": "root", "Acquire::Languages": "none", "Debug::NoLocking": "1"}
        options = [word for name, value in places.items() for word in ("--option", f"{name}={value}")]
        command = ["apt-get", "--quiet", "--quiet", *options, *words]
        if subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL).returncode != 0:
            sys.exit(f"apt-get {' '.join(map(str, words))}: its message is above")

    def update(self):
        """Fetches the lists, once a run."""
        if self.is_updated:
            return
        sites = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
        uris = subprocess.run(sites, check=True, capture_output=True, text=True).stdout.split()
        if not uris:
            sys.exit("this machine has no mirror of Debian: run apt-get update, then try again")
        (self.directory / "lists").mkdir(parents=True, exist_ok=True)
        (self.directory / "sources.list").write_text(f"deb [signed-by={KEYS}] {uris[0]} {self.release} main\n")
        self.apt_get("update")
        self.is_updated = True

    def packages(self, packages: list, root: Path):
        """Unpacks packages, each `name=version`, below `root`."""
        self.update()
        fetched = root.with_name(root.name + ".fetched")
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir(parents=True)
        self.apt_get("download", *packages, cwd=fetched)
        for package in fetched.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, fetched / "root"], check=True)
        (fetched / "root").rename(root)
        shutil.rmtree(fetched)
