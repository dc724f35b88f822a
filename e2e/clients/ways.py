"""psql, psycopg and asyncpg come in by every way that they know; a line of JSON for each.

The ways are given as JSON in the environment variable WAYS, see clients.rs.
"""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys

import asyncpg
import psycopg

WAYS = json.loads(os.environ["WAYS"])
resolve = socket.getaddrinfo
# What a wildcard record would say.
socket.getaddrinfo = lambda host, *more, **named: resolve("127.0.0.1", *more, **named)

LIBPQ = {
    "plain": {"sslmode": "disable"},
    "encrypted": {"sslmode": "require"},
    "verified": {"sslmode": "verify-full", "sslrootcert": WAYS["certificate"]},
    "at once": {"sslmode": "require", "sslnegotiation": "direct"},
    "bound": {"sslmode": "require", "channel_binding": "require"},
}


def tell(client, way, outcome):
    names = ("tls", "route", "pool")
    print(json.dumps({"client": client, **{name: way[name] for name in names}, **outcome}), flush=True)


def libpq(way):
    place = {"host": way["host"], "hostaddr": "127.0.0.1", "port": WAYS["port"], "dbname": "app", "user": way["user"]}
    if way["options"]:
        place["options"] = way["options"]
    return {**place, **LIBPQ[way["tls"]], "connect_timeout": 60}


def by_psql(program):
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major = int(said.split()[-1 if said.split()[-1][0].isdigit() else 2].split(".")[0])
    for way in WAYS["ways"]:
        if way["tls"] == "at once" and major < 17:
            continue
        place = " ".join(f"{name}='{value}'" for name, value in libpq(way).items())
        run = subprocess.run([program, "-XAtc", WAYS["sql"], place], capture_output=True, text=True, check=False,
                             env={**os.environ, "PGPASSWORD": WAYS["password"]})
        outcome = {"answer": run.stdout.strip()} if run.returncode == 0 else {"error": run.stderr}
        # Built without it, and says so.
        if "not supported" not in run.stderr and "not compiled in" not in run.stderr:
            tell(f"psql {major}", way, outcome)


def by_psycopg():
    name = f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version() // 10000}"
    for way in WAYS["ways"]:
        try:
            with psycopg.connect(**libpq(way), password=WAYS["password"]) as connection:
                outcome = {"answer": connection.execute(WAYS["sql"]).fetchone()[0]}
        except psycopg.Error as error:
            outcome = {"error": str(error)}
        tell(name, way, outcome)


def context(tls):
    made = ssl.create_default_context(cafile=WAYS["certificate"])
    if tls == "at once":
        # A server takes it only with this (PostgreSQL manual, "SSL Session Encryption").
        made.set_alpn_protocols(["postgresql"])
    if tls != "verified":
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


async def by_asyncpg():
    for way in WAYS["ways"]:
        if way["tls"] == "bound":
            continue
        settings = {"options": way["options"]} if way["options"] else {}
        encryption = False if way["tls"] == "plain" else context(way["tls"])
        try:
            connection = await asyncpg.connect(
                host=way["host"], port=WAYS["port"], user=way["user"], password=WAYS["password"], database="app",
                ssl=encryption, direct_tls=way["tls"] == "at once", server_settings=settings, timeout=60)
            outcome = {"answer": await connection.fetchval(WAYS["sql"])}
            await connection.close()
        except (asyncpg.PostgresError, OSError, ssl.SSLError, TimeoutError) as error:
            outcome = {"error": repr(error)}
        tell(f"asyncpg {asyncpg.__version__}", way, outcome)


for program in sys.argv[1:]:
    by_psql(program)
by_psycopg()
asyncio.run(by_asyncpg())
