"""One run of one query on one engine, in this process; prints what it cost as JSON.

    python engines.py ENGINE QUERY FORMAT DATA THREADS [--rows FILE]

`compare.py` calls it. Each engine gets the same files, gives all rows of its result to nobody, and reports their
number; with --rows they go to a file as lines instead, to be compared. CPU seconds and memory are those of the whole
process that computes, with its start.
"""

import argparse
import datetime
import decimal
import json
import os
import pathlib
import re
import resource
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q15", "q18", "q20", "tumble")
TABLES = ("person", "auction", "bid")
BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING"
AUCTION = (
    "itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3),"
    " expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING"
)
COUNTS = ", ".join(f"c{place} BIGINT" for place in range(12))
# The columns of each result, for the sinks.
RESULTS = {
    "q0": "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING",
    "q1": "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` TIMESTAMP(3), extra STRING",
    "q2": "auction BIGINT, price BIGINT",
    "q3": "name STRING, city STRING, state STRING, id BIGINT",
    "q4": "category BIGINT, average {mean}",
    "q5": "starttime TIMESTAMP(3), auction BIGINT, num BIGINT",
    "q7": "auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` TIMESTAMP(3), extra STRING",
    "q8": "id BIGINT, name STRING, starttime TIMESTAMP(3)",
    "q9": f"id BIGINT, {AUCTION}, auction BIGINT, bidder BIGINT, price BIGINT, bid_dateTime TIMESTAMP(3), bid_extra STRING",
    "q11": "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)",
    "q12": "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)",
    "q15": f"`day` STRING, {COUNTS}",
    "q18": BID,
    "q20": BID.replace("`dateTime`", "bid_dateTime").replace(" extra", " bid_extra")
    + ", "
    + AUCTION.replace("`dateTime`", "auction_dateTime").replace(" extra", " auction_extra"),
    "tumble": "auction BIGINT, starttime TIMESTAMP(3), bids BIGINT, total BIGINT, mean DOUBLE",
}


def columns(table: str) -> list[tuple[str, str]]:
    """Names and types of a table's columns that are in the files."""
    script = (ROOT / "queries/nexmark/tables.sql").read_text()
    body = re.search(rf"CREATE TABLE {table} \((.*?)  WATERMARK", script, re.S).group(1)
    found = re.findall(r"^\s+`?(\w+)`?\s+(BIGINT|STRING|TIMESTAMP\(3\)),$", body, re.M)
    return [*found, ("event_number", "BIGINT")]


def stream_sql(query: str) -> str:
    """The query as Tidegate and Flink read it."""
    path = HERE / "tumble.sql" if query == "tumble" else ROOT / f"queries/nexmark/{query}.sql"
    text = re.sub(r"^--.*\n", "", path.read_text(), flags=re.M)
    return text.strip().rstrip(";")


def text(value) -> str:
    """A value as all engines write it here: times in milliseconds, fractions with six digits at most."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime.datetime):
        return str((value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(milliseconds=1))
    if isinstance(value, (float, decimal.Decimal)):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value)


def consume(batches, rows_file) -> int:
    count = 0
    with open(rows_file or os.devnull, "w") as out:
        for batch in batches:
            count += batch.num_rows
            if rows_file:
                for row in zip(*(column.to_pylist() for column in batch.columns)):
                    out.write("|".join(map(text, row)) + "\n")
    return count


def own_cost() -> dict:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}


def duckdb(query, kind, data, threads, rows_file) -> dict:
    import duckdb as engine

    types = {"BIGINT": "BIGINT", "STRING": "VARCHAR", "TIMESTAMP(3)": "TIMESTAMP"}
    database = engine.connect()
    database.execute(f"SET threads = {threads}")
    database.execute("SET preserve_insertion_order = false")
    for table in TABLES:
        fields = "{" + ", ".join(f"'{name}': '{types[kind_]}'" for name, kind_ in columns(table)) + "}"
        path = f"'{data}/{table}.{kind}'"
        source = {
            "parquet": f"read_parquet({path})",
            "json": f"read_json({path}, format = 'newline_delimited', columns = {fields})",
            "csv": f"read_csv({path}, header = true, nullstr = 'NULL', columns = {fields})",
        }[kind]
        database.execute(f"CREATE VIEW {table} AS SELECT * FROM {source}")
    path = HERE / "duckdb/tumble.sql" if query == "tumble" else ROOT / f"tests/nexmark/batch/{query}.sql"
    reader = database.execute(path.read_text()).to_arrow_reader(65_536)
    return {"rows": consume(reader, rows_file), **own_cost()}


def datafusion(query, kind, data, threads, rows_file) -> dict:
    import datafusion as engine
    import pyarrow

    config = engine.SessionConfig({"datafusion.sql_parser.enable_ident_normalization": "false"})
    context = engine.SessionContext(config.with_target_partitions(threads))
    types = {"BIGINT": pyarrow.int64(), "STRING": pyarrow.string(), "TIMESTAMP(3)": pyarrow.timestamp("ms")}
    for table in TABLES:
        schema = pyarrow.schema([(name, types[kind_]) for name, kind_ in columns(table)])
        path = f"{data}/{table}.{kind}"
        if kind == "parquet":
            context.register_parquet(table, path)
        elif kind == "json":
            context.register_json(table, path, schema=schema, file_extension=".json")
        else:
            context.register_csv(table, path, schema=schema, has_header=True)
    sql = (HERE / f"datafusion/{query}.sql").read_text()
    sql = re.sub(r"\bms\(([\w.]+)\)", r"CAST(arrow_cast(\1, 'Timestamp(Millisecond, None)') AS BIGINT)", sql)
    stream = context.sql(sql).execute_stream()
    return {"rows": consume((batch.to_pyarrow() for batch in stream), rows_file), **own_cost()}


def tidegate(query, kind, data, threads, rows_file) -> dict:
    script = ""
    for table in TABLES:
        fields = "".join(f"  `{name}` {kind_},\n" for name, kind_ in columns(table))
        clock = "  p_time AS PROCTIME(),\n" if table == "bid" else ""
        script += (
            f"CREATE TABLE {table} (\n{fields}{clock}  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND\n)"
            f" WITH ('path' = '{data}/{table}.{kind}');\n"
        )
    if rows_file:
        script += stream_sql(query) + ";\n"
    else:
        script += f"CREATE TABLE nowhere ({RESULTS[query].format(mean='DOUBLE')}) WITH ('connector' = 'blackhole');\n"
        script += f"INSERT INTO nowhere\n{stream_sql(query)};\n"
    program = os.environ.get("TIDEGATE", ROOT / "target/release/tidegate")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        command = [program, "run", file.name, "-p", str(threads), "--summary", "json", "-f", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    summary = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")][-1]
    if rows_file:
        with open(rows_file, "w") as out:
            for line in done.stdout.splitlines():
                values = json.loads(line, parse_float=decimal.Decimal).values()
                out.write("|".join(text(time_or(value)) for value in values) + "\n")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"rows": summary["rows_out"], "cpu": used.ru_utime + used.ru_stime, "mb": used.ru_maxrss / 1024}


def time_or(value):
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}", value):
        return datetime.datetime.fromisoformat(value)
    return value


def flink(query, kind, data, threads, rows_file) -> dict:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    if kind != "json" or rows_file:
        raise SystemExit("Flink runs over JSON lines, for timings only")
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("parallelism.default", str(threads))
    for table in TABLES:
        fields = "".join(f"`{name}` {kind_}, " for name, kind_ in columns(table))
        clock = "p_time AS PROCTIME(), " if table == "bid" else ""
        environment.execute_sql(
            f"CREATE TABLE {table} ({fields}{clock}WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)"
            f" WITH ('connector' = 'filesystem', 'path' = 'file://{data}/{table}.json', 'format' = 'json',"
            " 'json.timestamp-format.standard' = 'ISO-8601')"
        )
    fields = RESULTS[query].format(mean="BIGINT")
    environment.execute_sql(f"CREATE TABLE nowhere ({fields}) WITH ('connector' = 'blackhole')")
    environment.execute_sql(f"INSERT INTO nowhere {stream_sql(query)}").wait()
    return {"rows": None, **cost_of_children()}


def cost_of_children() -> dict:
    """What the JVM below this process has used, with this process."""
    cost = own_cost()
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in pathlib.Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if entry.name.isdigit() and int(fields[1]) == os.getpid():
                cost["cpu"] += (int(fields[11]) + int(fields[12])) / ticks
                peak = re.search(r"VmHWM:\s+(\d+)", (entry / "status").read_text())
                cost["mb"] += int(peak.group(1)) / 1024
        except (OSError, IndexError):
            continue
    return cost


ENGINES = {"tidegate": tidegate, "duckdb": duckdb, "datafusion": datafusion, "flink": flink}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("engine", choices=ENGINES)
    arguments.add_argument("query", choices=QUERIES)
    arguments.add_argument("format", choices=("json", "csv", "parquet"))
    arguments.add_argument("data", type=pathlib.Path)
    arguments.add_argument("threads", type=int)
    arguments.add_argument("--rows")
    given = arguments.parse_args()
    started = time.monotonic()
    cost = ENGINES[given.engine](given.query, given.format, given.data.resolve(), given.threads, given.rows)
    print(json.dumps({**cost, "wall": time.monotonic() - started}))


if __name__ == "__main__":
    main()
