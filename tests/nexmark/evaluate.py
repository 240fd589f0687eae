"""Evaluates the Nexmark queries by DuckDB over the rows that Tidegate generates, and writes expected/.

    pip install -r tests/nexmark/requirements.txt
    cargo build
    python tests/nexmark/evaluate.py [--tidegate target/debug/tidegate]

README.md beside this file tells what the files are.
"""

import argparse
import datetime
import decimal
import json
import pathlib
import re
import subprocess
import tempfile

import duckdb

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLES = ("person", "auction", "bid")
EVENTS = (100_000, 5_000)
# Results up to this many bytes are kept whole, of others the first lines.
KEPT_BYTES = 6_000
FIRST_LINES = 5


def export(tidegate: pathlib.Path, events: int, folder: pathlib.Path) -> None:
    """Writes the tables as Parquet, with the numbers of the events, which tell the order of arrival."""
    script = (ROOT / "queries/nexmark/tables.sql").read_text()
    script, changed = re.subn(r"'events.num' = '\d+'", f"'events.num' = '{events}'", script)
    assert changed == len(TABLES)
    script, changed = re.subn(r"(  p_time .*\n)?  WATERMARK", "  event_number BIGINT,\n  WATERMARK", script)
    assert changed == len(TABLES)
    columns = re.findall(r"CREATE TABLE (\w+) \((.*?)  WATERMARK", script, re.S)
    assert len(columns) == len(TABLES)
    for table, fields in columns:
        script += (
            f"CREATE TABLE copy_of_{table} ({fields.strip().rstrip(',')})"
            f" WITH ('connector' = 'filesystem', 'path' = '{folder}/{table}.parquet');\n"
            f"INSERT INTO copy_of_{table} SELECT * FROM {table};\n"
        )
    path = folder / "export.sql"
    path.write_text(script)
    subprocess.run([tidegate, "run", path, "-q"], check=True)


def text(value) -> str:
    """A value as the test writes it: times in milliseconds, fractions with six digits."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime.datetime):
        return str((value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(milliseconds=1))
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    return str(value)


def fnv1a(line: str) -> int:
    digest = 0xCBF29CE484222325
    for byte in line.encode():
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest


def evaluate(database: duckdb.DuckDBPyConnection, query: pathlib.Path) -> dict:
    rows = database.execute(query.read_text()).fetchall()
    lines = sorted("|".join(map(text, row)) for row in rows)
    whole = sum(len(line) + 1 for line in lines) <= KEPT_BYTES
    return {
        "rows": len(lines),
        "digest": f"{sum(map(fnv1a, lines)) % 2**64:016x}",
        "lines": lines if whole else lines[:FIRST_LINES],
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--tidegate", type=pathlib.Path, default=ROOT / "target/debug/tidegate")
    tidegate = arguments.parse_args().tidegate.resolve()
    queries = sorted((HERE / "batch").glob("q*.sql"), key=lambda path: int(path.stem[1:]))
    for events in EVENTS:
        with tempfile.TemporaryDirectory() as folder:
            export(tidegate, events, pathlib.Path(folder))
            database = duckdb.connect()
            for table in TABLES:
                database.execute(f"CREATE TABLE {table} AS FROM '{folder}/{table}.parquet'")
            results = {query.stem: evaluate(database, query) for query in queries}
        path = HERE / "expected" / f"{events}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{path.relative_to(ROOT)}: {len(results)} queries")


if __name__ == "__main__":
    main()
