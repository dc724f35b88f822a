#!/usr/bin/env python3
"""Reads a store of Coppice without Coppice, and shows by that what is in it.

    read_store.py STORE KEY list             bases, pieces of logs and records
    read_store.py STORE KEY verify           opens every object and block
    read_store.py STORE KEY restore BASE TO  the files of a base, into a new directory
    read_store.py STORE KEY log BASE         the write-ahead log behind a base, to the standard output
    read_store.py STORE KEY records          the newest export of the metastore

STORE is a directory; of a bucket, a copy of it. KEY is a copy of `secret.key`. Needs the
package `cryptography` of PyPI and the library zstd. A base needs the log behind it: see
docs/backups.md.
"""

import ctypes
import hashlib
import hmac
import json
import os
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

BLOCK = 64 << 10
ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t


def decompress(frame):
    size = ZSTD.ZSTD_getFrameContentSize(frame, ctypes.c_size_t(len(frame)))
    if size > 2 << 30:
        raise ValueError("no frame of zstd that says how long it is")
    content = ctypes.create_string_buffer(size or 1)
    done = ZSTD.ZSTD_decompress(content, ctypes.c_size_t(size), frame, ctypes.c_size_t(len(frame)))
    if done != size:
        raise ValueError("a frame of zstd is damaged")
    return content.raw[:size]


def sign(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def archive_key(secret):
    """The key of the store, from a `secret.key`: 32 bytes, or the text that a rekey leaves."""
    if len(secret) == 32:
        return sign(secret, b"coppice archive 1")
    lines = dict(line.split(" ", 1) for line in secret.decode().splitlines()[1:] if line)
    return bytes.fromhex(lines["archive"])


class Text:
    """Something that was written by postcard (https://postcard.jamesmunns.com/wire-format)."""

    def __init__(self, content):
        self.content, self.at = content, 0

    def bytes(self, count):
        self.at += count
        if self.at > len(self.content):
            raise ValueError("it ends too early")
        return self.content[self.at - count:self.at]

    def number(self):
        value = shift = 0
        while True:
            byte = self.bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def text(self):
        return self.bytes(self.number())

    def option(self, read):
        return read() if self.bytes(1) == b"\1" else None

    def list(self, read):
        return [read() for _ in range(self.number())]


class Manifest:
    """What a base consists of."""

    def __init__(self, content):
        it = Text(content)
        self.volume, self.taken_ms = it.text().decode(), it.signed()
        # In its log, how far what is in the base goes.
        self.log_end, self.label = it.option(it.number), json.loads(it.text())
        self.packs = it.list(lambda: it.bytes(16))
        # Of each: its keyed hash, which pack, which number in it, and where it is there.
        self.blocks = it.list(lambda: (it.bytes(16), it.number(), it.number(), it.number(), it.number()))
        self.directories = it.list(lambda: (it.text(), it.number()))
        # Path, mode, size, and of each block that is not zero: which of the file, which of these above.
        self.files = it.list(lambda: (it.text(), it.number(), it.number(),
                                      it.list(lambda: (it.number(), it.number()))))


class Store:
    def __init__(self, directory, key):
        self.directory = directory
        self.objects = AESGCM(sign(key, b"coppice archive objects 1"))
        self.hashing, self.packs = sign(key, b"coppice archive blocks 1"), sign(key, b"coppice archive packs 1")
        head = json.loads(self.get("coppice.json"))
        if head["format"] != 1:
            raise SystemExit(f"the store has format {head['format']}, and this reads 1")
        if head["check"] != sign(key, b"coppice archive check 1")[:16].hex():
            raise SystemExit(f"this is not the key of installation {head['installation']}")

    def get(self, name):
        with open(os.path.join(self.directory, name), "rb") as file:
            return file.read()

    def names(self, below):
        """Names of objects, oldest first."""
        found = [os.path.relpath(os.path.join(place, name), self.directory)
                 for place, _, names in os.walk(os.path.join(self.directory, below)) for name in names]
        return sorted(found)

    def open(self, name):
        """An object that is sealed: a nonce, and a zstd frame under its name."""
        sealed = self.get(name)
        return decompress(self.objects.decrypt(sealed[:12], sealed[12:], name.encode()))

    def block(self, manifest, place):
        """A block, proven: packs have a key each, and blocks a number there."""
        name, pack, number, offset, length = manifest.blocks[place]
        pack = manifest.packs[pack]
        with open(os.path.join(self.directory, "packs", pack.hex()), "rb") as file:
            file.seek(offset)
            sealed = file.read(length)
        key = AESGCM(sign(self.packs, pack))
        content = decompress(key.decrypt(number.to_bytes(4, "little") + bytes(8), sealed, b""))
        if sign(self.hashing, content)[:16] != name:
            raise ValueError("a block is another one than the manifest says")
        return content

    def restore(self, base, target):
        manifest = Manifest(self.open(base))
        os.makedirs(target)
        for path, mode in manifest.directories:
            os.mkdir(os.path.join(target.encode(), path))
            os.chmod(os.path.join(target.encode(), path), mode)
        for path, mode, size, blocks in manifest.files:
            with open(os.path.join(target.encode(), path), "wb") as file:
                file.truncate(size)
                for number, place in blocks:
                    file.seek(number * BLOCK)
                    file.write(self.block(manifest, place))
            os.chmod(os.path.join(target.encode(), path), mode)

    def log(self, base):
        """The log from where a base ends: a later piece says where it went on."""
        manifest, log = Manifest(self.open(base)), b""
        for name in self.names("wal/" + manifest.volume):
            seen_ms, start, end = os.path.basename(name).split("-")
            start, end = int(start, 16), int(end, 16)
            if int(seen_ms) < manifest.taken_ms or end <= manifest.log_end:
                continue
            if start > manifest.log_end + len(log):
                raise SystemExit(f"the log has a gap before {name}")
            piece = self.open(name)
            before = start - manifest.log_end
            log = log[:before] + piece if before >= 0 else piece[-before:]
        return log

    def records(self, name):
        it = Text(self.open(name))
        return it.text().decode(), it.text()


def main(directory, key_file, command, *rest):
    with open(key_file, "rb") as file:
        store = Store(directory, archive_key(file.read()))
    if command == "list":
        for name in store.names("bases") + store.names("wal") + store.names("records"):
            print(name)
    elif command == "verify":
        for name in store.names("bases"):
            manifest = Manifest(store.open(name))
            size = sum(len(store.block(manifest, place)) for place in range(len(manifest.blocks)))
            print(f"{name}: {len(manifest.files)} files, {len(manifest.blocks)} blocks, {size} bytes")
        for name in store.names("wal"):
            print(f"{name}: {len(store.open(name))} bytes")
        for name in store.names("records"):
            print(f"{name}: {len(store.records(name)[1])} bytes")
    elif command == "restore":
        store.restore(*rest)
    elif command == "log":
        sys.stdout.buffer.write(store.log(*rest))
    elif command == "records":
        sys.stdout.buffer.write(store.records(store.names("records")[-1])[1])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 3 else sys.exit(__doc__)
