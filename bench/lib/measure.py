"""What the benchmarks have in common: parents with data, and figures."""

import time


def timed(action):
    """Milliseconds that something takes, and what it returns."""
    started = time.perf_counter()
    result = action()
    return (time.perf_counter() - started) * 1000, result


def fill(connection, megabytes):
    connection.ask("CREATE TABLE filler (i int, text text)")
    # About 1 kB a row; random enough not to be compressed.
    for _ in range(max(1, megabytes // 10)):
        connection.ask("INSERT INTO filler SELECT i, (SELECT string_agg(md5((i * 31 + j)::text), '') "
                       "FROM generate_series(1, 30) j) FROM generate_series(1, 10000) i")
    connection.ask("CREATE TABLE light (i int)")
    # Else autovacuum does it while children are measured, and its parent is not idle.
    connection.ask("VACUUM filler")


def settle(*superusers):
    """So that neither child has to replay how its parent was filled."""
    for connection in superusers:
        connection.ask("CHECKPOINT")
        connection.close()


def first_row(connect):
    connection = connect()
    assert connection.ask("SELECT 1") == "1"
    connection.close()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def show(entry):
    values = {key: value for key, value in entry.items() if key != "name"}
    digits = {key: 2 if key.startswith("ratio") else 1 for key in values}
    parts = [f"{key} {value:.{digits[key]}f}" if isinstance(value, float) else f"{key} {value}"
             for key, value in values.items()]
    print(f"{entry['name']:40} {'  '.join(parts)}", flush=True)
