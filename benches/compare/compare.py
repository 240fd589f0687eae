"""Nexmark on Tidegate, DuckDB, DataFusion and Flink: the same files, in turn, several rounds.

    pip install -r benches/compare/requirements.txt            # and requirements-flink.txt, with Java 17
    cargo build --release
    python benches/compare/compare.py                          # everything: hours, most of them Flink's
    python benches/compare/compare.py --engines tidegate duckdb --queries q5 tumble --formats parquet --events 1000000

README.md beside this file tells what is measured and how.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import engines

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHECKED_EVENTS = 100_000
# Windows by the clock: which there are depends on when rows are read.
UNCHECKED = ("q12",)
FORMATS = ("json", "csv", "parquet")


def tidegate() -> pathlib.Path:
    return pathlib.Path(os.environ.get("TIDEGATE", ROOT / "target/release/tidegate")).resolve()


def generate(events: int, formats: list[str], folder: pathlib.Path) -> pathlib.Path:
    """The events as files, made by Tidegate's own generator; those that are there are taken as they are."""
    data = folder / str(events)
    data.mkdir(parents=True, exist_ok=True)
    script = (ROOT / "queries/nexmark/tables.sql").read_text()
    script = re.sub(r"'events.num' = '\d+'", f"'events.num' = '{events}'", script)
    script = re.sub(r"(  p_time .*\n)?  WATERMARK", "  event_number BIGINT,\n  WATERMARK", script)
    copies = ""
    for table, kind in itertools.product(engines.TABLES, formats):
        if (data / f"{table}.{kind}").exists():
            continue
        fields = ", ".join(f"`{name}` {type_}" for name, type_ in engines.columns(table))
        header = ", 'csv.header' = 'true'" if kind == "csv" else ""
        copies += (
            f"CREATE TABLE {table}_{kind} ({fields}) WITH ('path' = '{data}/{table}.{kind}'{header});\n"
            f"INSERT INTO {table}_{kind} SELECT {', '.join(f'`{name}`' for name, _ in engines.columns(table))} FROM {table};\n"
        )
    if copies:
        print(f"generating {events:,} events in {data}", file=sys.stderr)
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script + copies)
            file.flush()
            subprocess.run([tidegate(), "run", file.name, "-q"], check=True)
    return data


def run(engine, query, kind, data, threads, rows=None) -> dict:
    python = os.environ.get("FLINK_PYTHON", sys.executable) if engine == "flink" else sys.executable
    command = [python, HERE / "engines.py", engine, query, kind, data, str(threads)]
    if rows:
        command += ["--rows", rows]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{engine} {query} {kind}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def check(given, data, folder) -> None:
    """All rows of all engines but Flink are the same, over fewer events."""
    for query, kind in itertools.product(given.queries, given.formats):
        if query in UNCHECKED:
            continue
        answers = {}
        for engine in given.engines:
            if engine == "flink":
                continue
            path = folder / "rows.txt"
            run(engine, query, kind, data, given.threads, path)
            lines = path.read_text().splitlines()
            if kind == "csv":
                # An empty field is an empty text or NULL, as an engine likes.
                lines = [re.sub(r"(?<![^|])NULL(?![^|])", "", line) for line in lines]
            answers[engine] = sorted(lines)
        first, *others = answers
        for other in others:
            if answers[first] != answers[other]:
                differ = [pair for pair in zip(answers[first], answers[other]) if pair[0] != pair[1]][:2]
                counts = {engine: len(rows) for engine, rows in answers.items()}
                raise SystemExit(f"{query} {kind}: {first} and {other} differ: {counts} rows, {differ}")
        print(f"{query} {kind}: {len(answers[first])} rows, {', '.join(answers)} agree", file=sys.stderr)


def measure(given, data) -> dict:
    """Runs of each (query, format, engine), the engines in turn."""
    runs: dict = {}
    for query, kind in itertools.product(given.queries, given.formats):
        for round_ in range(given.rounds):
            for engine in given.engines:
                if engine == "flink" and (kind != "json" or round_ >= given.flink_rounds):
                    continue
                one = run(engine, query, kind, data, given.threads)
                runs.setdefault((query, kind, engine), []).append(one)
                print(f"{query} {kind} {engine}: {json.dumps(one)}", file=sys.stderr, flush=True)
        counts = {engine: {one["rows"] for one in runs.get((query, kind, engine), [])} for engine in given.engines}
        known = set().union(*counts.values()) - {None}
        if len(known) > 1 and query not in UNCHECKED:
            raise SystemExit(f"{query} {kind}: the engines do not agree on the number of rows: {counts}")
    return runs


def table(given, runs) -> str:
    """The results as a table in Markdown."""
    lines = [
        "| query | files | engine | wall s | CPU s | events per CPU s | peak MB | CPU ÷ Tidegate's | of rounds |",
        "|---|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for (query, kind, engine), ones in runs.items():
        middle = {key: statistics.median(one[key] for one in ones) for key in ("wall", "cpu", "mb")}
        ratio = spread = ""
        if engine != "tidegate" and (query, kind, "tidegate") in runs:
            pairs = zip(ones, runs[query, kind, "tidegate"])
            ratios = sorted(one["cpu"] / own["cpu"] for one, own in pairs)
            ratio, spread = f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        lines.append(
            f"| {query} | {kind} | {engine} | {middle['wall']:.2f} | {middle['cpu']:.2f}"
            f" | {given.events / middle['cpu'] / 1e3:,.0f} k | {middle['mb']:,.0f} | {ratio} | {spread} |"
        )
    return "\n".join(lines)


def machine(given) -> str:
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()).group(1)
    versions = [subprocess.run([tidegate(), "--version"], capture_output=True, text=True).stdout.splitlines()[0]]
    names = {"duckdb": "duckdb", "datafusion": "datafusion", "flink": "apache-flink"}
    from importlib.metadata import version

    for engine in given.engines:
        if engine == "flink" and "FLINK_PYTHON" in os.environ:
            code = "from importlib.metadata import version; print(version('apache-flink'))"
            found = subprocess.run([os.environ["FLINK_PYTHON"], "-c", code], capture_output=True, text=True)
            versions.append(f"flink {found.stdout.strip()}")
        elif engine in names:
            versions.append(f"{engine} {version(names[engine])}")
    return (
        f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, Linux {platform.release()}; {', '.join(versions)};"
        f" {given.events:,} events, {given.threads} thread(s), medians of {given.rounds} rounds in turn."
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--engines", nargs="+", choices=engines.ENGINES, default=list(engines.ENGINES))
    arguments.add_argument("--queries", nargs="+", choices=engines.QUERIES, default=list(engines.QUERIES))
    arguments.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    arguments.add_argument("--events", type=int, default=10_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--flink-rounds", type=int, default=1, help="Flink is slow; its figures vary little")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--data", type=pathlib.Path, default=ROOT / "target/compare", help="where the files are kept")
    arguments.add_argument("--no-check", action="store_true", help="don't compare all rows of the answers first")
    given = arguments.parse_args()
    if not given.no_check:
        data = generate(CHECKED_EVENTS, given.formats, given.data)
        check(given, data, given.data)
    data = generate(given.events, given.formats, given.data)
    runs = measure(given, data)
    print(machine(given))
    print()
    print(table(given, runs))


if __name__ == "__main__":
    main()
