"""The suites that there are."""

from suites import GoTest, Pytest

BRANCH_IN_USER = "the user name that the client gives ends with the branch, the role's does not"
SHARED_PROCESS = "the process id that a client of a pool has is its own, and no process of the server is"
OWN_NAMES = "on the server the statements of a pool have names of the gateway, and outlast their clients"


def psycopg2_environment(server):
    names = {"": server.database, "_HOST": server.host, "_PORT": server.port}
    names |= {"_USER": server.user, "_PASSWORD": server.password}
    return {f"PSYCOPG2_TESTDB{name}": value for name, value in names.items()}


def pgx_environment(server):
    url = server.url("postgres")
    names = {"DATABASE": url, "TCP_CONN_STRING": url, "TLS_CONN_STRING": f"{url}?sslmode=require"}
    return {f"PGX_TEST_{name}": value for name, value in names.items()} | {"PGX_SSL_PASSWORD": "certpw"}


PGX_PACKAGES = [
    "golang-1.26-go=1.26.10-1",
    "golang-1.26-src=1.26.10-1",
    "golang-github-davecgh-go-spew-dev=1.1.1-7",
    "golang-github-jackc-pgpassfile-dev=1.0.0-2",
    "golang-github-jackc-pgservicefile-dev=0.0~git20231201.de7065d-1",
    "golang-github-jackc-pgx-v5-dev=5.9.2-1",
    "golang-github-jackc-puddle-v2-dev=2.2.2-2",
    "golang-github-pmezard-go-difflib-dev=1.0.0-4",
    "golang-github-stretchr-objx-dev=0.5.2-1",
    "golang-github-stretchr-testify-dev=1.11.1-2",
    "golang-golang-x-sync-dev=0.24.0-1",
    "golang-golang-x-text-dev=0.43.0-1",
    "golang-gopkg-yaml.v3-dev=3.0.5-1",
]

SUITES = [
    Pytest(
        name="psycopg2",
        source="psycopg2==2.9.10",
        install=["psycopg2-binary==2.9.10"],
        parts=["tests"],
        arguments=lambda server: ["tests"],
        environment=psycopg2_environment,
        before=["CREATE EXTENSION IF NOT EXISTS hstore"],
        expected={
            "direct": {"TestConnectionInfo::test_user": BRANCH_IN_USER},
            "pooled": {
                "test_backend_pid|test_notif(y|ies)|test_many_notifies|test_external_close_async": SHARED_PROCESS
            },
        },
    ),
    Pytest(
        name="asyncpg",
        source="asyncpg==0.32.0",
        install=["asyncpg==0.32.0", "distro==1.9.0"],
        parts=["tests"],
        arguments=lambda server: ["tests"],
        expected={
            "direct": {
                "test_pool_config_persistence": "loses a connection now here and now there",
                "test_executemany_server_failure_during_writes": "which of an error and the last write is first is chance",
            },
            "pooled": {
                "TestListeners::test_listen_|test_pool_remote_close": SHARED_PROCESS,
                "test_pool_min_size_restored_after_idle_connection_loss": SHARED_PROCESS,
                "test_prepare_explicitly_named": OWN_NAMES,
                "test_introspection_sticks_for_ps": "drops a database in which the pool still has a session",
            },
        },
    ),
    # Over psycopg 3, whose own tests are in no package.
    Pytest(
        name="sqlalchemy",
        source="sqlalchemy==2.1.9",
        install=["sqlalchemy==2.1.9", "psycopg[binary]==3.3.9"],
        parts=["lib", "test", "setup.cfg", "pyproject.toml"],
        # What every dialect has to do, and what only this one can.
        arguments=lambda server: [
            "test/dialect/test_suite.py",
            "test/dialect/postgresql",
            "--dburi",
            server.url("postgresql+psycopg"),
        ],
        before=[
            "CREATE SCHEMA test_schema",
            "CREATE SCHEMA test_schema_2",
            "CREATE COLLATION \"en_US\" (LOCALE = 'C.UTF-8')",
            "CREATE EXTENSION IF NOT EXISTS hstore",
            "CREATE EXTENSION IF NOT EXISTS citext",
        ],
    ),
    GoTest(
        name="pgx",
        packages=PGX_PACKAGES,
        module="github.com/jackc/pgx/v5",
        environment=pgx_environment,
        before=[
            "CREATE EXTENSION IF NOT EXISTS hstore",
            "CREATE EXTENSION IF NOT EXISTS ltree",
            "CREATE DOMAIN uint64 AS numeric(20, 0)",
        ],
        expected={
            "direct": {
                "v5::TestConnect$": BRANCH_IN_USER,
                "TestConnectInvalidUser": "a user name without a branch at its end is refused with another SQLSTATE",
                "TestConnectProtocolVersion32": "the gateway speaks 3.2, with its long secrets, also before PostgreSQL 18",
                "TestConnectTLS": "pg_stat_ssl is about the socket between the gateway and the server",
            },
            "pooled": {
                "TestConnCheckConn|TestCheckIdleConn|TestPoolAcquireChecksIdleConns|TestFatal[RT]xError": SHARED_PROCESS,
                "TestDeallocateMissing|TestConnMultiplePrepareAndDeallocate|TimeoutBetweenParseAndDescribe": OWN_NAMES,
                "MaxNumberOfParams|TooManyParams": "a statement with a name is no longer than 256 KiB in a pool",
            },
        },
    ),
]
