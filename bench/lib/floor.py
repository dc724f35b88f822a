"""What is compared with: the same steps by hand, without the platform.

A cluster on a btrfs file system in a file, run as the account `postgres`. A
child of it is a snapshot, then a bare `postgres`, then the statements that make
a copy safe to use, then a client's sign-in.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time

from lib.client import Connection

BIN = "/usr/lib/postgresql/15/bin"
BTRFS_IOC_SNAP_CREATE_V2 = 0x50009417
BTRFS_IOC_SNAP_DESTROY = 0x5000940F
BTRFS_IOC_SUBVOL_CREATE = 0x5000940E
SETTINGS = ["shared_buffers=256MB", "fsync=on", "listen_addresses=", "max_connections=105", "jit=off",
            "shared_preload_libraries=pg_stat_statements,auto_explain", "password_encryption=scram-sha-256",
            "max_wal_size=1GB", "logging_collector=off"]


def run(*command, **options):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def as_postgres(*command):
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", *command]


def volume_ioctl(parent, request, name, source_fd=None):
    if source_fd is None:
        argument = struct.pack("=q4088s", 0, name.encode())
    else:
        argument = struct.pack("=qQQ32s4040s", source_fd, 0, 0, b"", name.encode())
    directory = os.open(parent, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, request, bytearray(argument))
    finally:
        os.close(directory)


class Server:
    def __init__(self, directory):
        self.directory, self.data = directory, directory + "/data"
        self.start()

    def start(self):
        """Returns when the server says that it is ready."""
        arguments = [part for setting in SETTINGS for part in ("-c", setting)]
        self.process = subprocess.Popen(
            as_postgres(BIN + "/postgres", "-D", self.data, "-k", self.directory, *arguments),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lock_file = self.data + "/postmaster.pid"
        while True:
            try:
                lines = open(lock_file).read().split("\n")
                if len(lines) > 7 and lines[7].strip() == "ready" and int(lines[0]) == self.process.pid:
                    break
            except (FileNotFoundError, ValueError):
                pass
            if self.process.poll() is not None:
                raise RuntimeError("bare postgres did not start")
            time.sleep(0.001)

    def connect(self, user="app", password="app", database="app"):
        return Connection(self.directory + "/.s.PGSQL.5432", user, password, database)

    def stop(self, how=signal.SIGQUIT):
        self.process.send_signal(how)
        self.process.wait()


class Floor:
    def __init__(self, directory, size_gib):
        self.directory, self.root = directory, directory + "/btrfs"
        os.makedirs(self.root)
        os.chmod(directory, 0o755)
        image = directory + "/btrfs.img"
        run("fallocate", "-l", f"{size_gib}G", image)
        run("mkfs.btrfs", "-q", image)
        self.device = subprocess.check_output(
            ["losetup", "--direct-io=on", "--show", "-f", image], text=True).strip()
        run("mount", "-o", "noatime,nodiscard", self.device, self.root)
        os.chmod(self.root, 0o755)
        self.count = 0
        self.parents = []

    def parent(self, name):
        path = f"{self.root}/{name}"
        volume_ioctl(self.root, BTRFS_IOC_SUBVOL_CREATE, name)
        shutil.chown(path, "postgres", "postgres")
        password_file = path + "/password"
        with open(password_file, "w") as file:
            file.write("app\n")
        run(*as_postgres(BIN + "/initdb", "-D", path + "/data", "-k", "-A", "scram-sha-256",
                         "--pwfile", password_file, "--locale=C.UTF-8"))
        os.unlink(password_file)
        server = Server(path)
        self.parents.append(server)
        admin = server.connect("postgres", "app", "postgres")
        admin.ask("CREATE ROLE app LOGIN CREATEDB CREATEROLE PASSWORD 'app'")
        admin.ask("CREATE DATABASE app OWNER app")
        admin.ask("CREATE EXTENSION pg_stat_statements")
        admin.close()
        return server

    def child(self, parent):
        """Returns the server of a new copy, made as the platform makes one."""
        self.count += 1
        name = f"child-{self.count}"
        source = os.open(parent.directory, os.O_RDONLY)
        volume_ioctl(self.root, BTRFS_IOC_SNAP_CREATE_V2, name, source)
        os.close(source)
        path = f"{self.root}/{name}"
        for stale in ("data/postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432"):
            try:
                os.unlink(f"{path}/{stale}")
            except FileNotFoundError:
                pass
        server = Server(path)
        admin = server.connect("postgres", "app", "postgres")
        admin.ask("UPDATE pg_subscription SET subenabled = false, subslotname = NULL")
        admin.ask("SELECT pg_stat_statements_reset()")
        admin.ask("ALTER ROLE app PASSWORD 'app'")
        admin.close()
        return server

    def remove(self, server):
        server.stop()
        volume_ioctl(self.root, BTRFS_IOC_SNAP_DESTROY, os.path.basename(server.directory))

    def close(self):
        for server in self.parents:
            server.stop()
        for _ in range(50):
            if subprocess.run(["umount", self.root], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.1)
        subprocess.run(["losetup", "-d", self.device], check=False)
