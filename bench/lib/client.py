"""A PostgreSQL client of one page: sign in by SCRAM-SHA-256, ask for one row.

The same client measures the platform and what it is compared with, so that its
own cost is in both.
"""

import base64
import hashlib
import hmac
import os
import socket
import struct


class ServerError(Exception):
    pass


class Connection:
    def __init__(self, address, user, password, database, source=None):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        # Large data takes minutes to be vacuumed.
        self.socket.settimeout(600)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pairs = f"user\0{user}\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack("!ii", len(pairs) + 8, 196608) + pairs)
        self._sign_in(password)

    def _read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ServerError("the server closed the connection")
            data += more
        return data

    def _message(self):
        kind, length = struct.unpack("!ci", self._read(5))
        body = self._read(length - 4)
        if kind == b"E":
            raise ServerError(body.replace(b"\0", b" ").decode())
        return kind, body

    def _send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def _sign_in(self, password):
        first = "n=,r=" + base64.b64encode(os.urandom(18)).decode()
        while True:
            kind, body = self._message()
            if kind == b"Z":
                return
            if kind != b"R":
                continue
            method = struct.unpack("!i", body[:4])[0]
            if method == 10:
                text = ("n,," + first).encode()
                self._send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(text)) + text)
            elif method == 11:
                challenge = body[4:].decode()
                fields = dict(part.split("=", 1) for part in challenge.split(","))
                salt = base64.b64decode(fields["s"])
                salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, int(fields["i"]))
                key = hmac.digest(salted, b"Client Key", "sha256")
                final = "c=biws,r=" + fields["r"]
                message = ",".join([first, challenge, final]).encode()
                signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
                proof = bytes(a ^ b for a, b in zip(key, signature))
                self._send(b"p", (final + ",p=" + base64.b64encode(proof).decode()).encode())

    def ask(self, sql):
        """Runs a statement and returns the first column of its last row."""
        self._send(b"Q", sql.encode() + b"\0")
        answer = None
        while True:
            kind, body = self._message()
            if kind == b"D":
                length = struct.unpack("!i", body[2:6])[0]
                answer = body[6 : 6 + length].decode() if length >= 0 else None
            elif kind == b"Z":
                return answer

    def close(self):
        self.socket.close()
