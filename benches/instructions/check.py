"""Counts the instructions of small runs and compares them with those that are kept in counts.json.

    cargo build --release
    python3 benches/instructions/check.py            # fails if a run takes 5 % more than is kept
    python3 benches/instructions/check.py --write    # keeps what it counts: say in the change why

Times of small runs are noise on most machines; instructions are not: they vary by less than 1 %. Needs valgrind.
They are those of one compiler: with another version of rustc it says so and compares nothing.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COUNTS = HERE / "counts.json"
MOST = 1.05
TABLES = "queries/nexmark/tables.sql"
BIDS = (
    "CREATE TABLE {name} (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3),"
    " extra STRING, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) WITH ('path' = '{folder}/bids.{kind}');"
)
NOWHERE = "CREATE TABLE nowhere ({columns}) WITH ('connector' = 'blackhole'); INSERT INTO nowhere "


def runs(folder: pathlib.Path) -> dict[str, list[str]]:
    """Arguments of each run."""

    def over_bids(kind: str, columns: str, query: str) -> list[str]:
        tables = BIDS.format(name="bids", folder=folder, kind=kind)
        return ["-c", f"{tables} {NOWHERE.format(columns=columns)} {query}"]

    return {
        "start": ["-c", "SELECT 1 AS one"],
        "csv, tumble": ["run", "queries/flights/hourly.sql"],
        "json, filter": over_bids(
            "json", "auction BIGINT, price BIGINT", "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0"
        ),
        "parquet, session": over_bids(
            "parquet",
            "bidder BIGINT, bids BIGINT, ended TIMESTAMP(3)",
            "SELECT bidder, COUNT(*), window_end FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(`dateTime`),"
            " INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
        ),
        "hop, join of windows": ["run", TABLES, "queries/nexmark/q5.sql"],
        "interval join, first row": ["run", TABLES, "queries/nexmark/q9.sql"],
        "distinct, changes": ["run", TABLES, "queries/nexmark/q15.sql"],
    }


def prepare(tidegate: pathlib.Path, folder: pathlib.Path) -> None:
    script = (ROOT / TABLES).read_text()
    for kind in ("json", "parquet"):
        script += BIDS.format(name=f"bids_{kind}", folder=folder, kind=kind)
        script += (
            f"INSERT INTO bids_{kind} SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM bid;"
        )
    subprocess.run([tidegate, "run", "-", "-q"], input=script, text=True, check=True, cwd=ROOT)


def count(tidegate: pathlib.Path, arguments: list[str]) -> int:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run([*command, tidegate, *arguments, "-q"], cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
    return int(found.group(1).replace(",", ""))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--tidegate", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    tidegate = given.tidegate.resolve()
    version = subprocess.run([tidegate, "--version"], capture_output=True, text=True, check=True).stdout
    compiler = re.search(r"rustc (\S+)", version).group(1)
    with tempfile.TemporaryDirectory() as folder:
        prepare(tidegate, pathlib.Path(folder))
        counted = {name: count(tidegate, run) for name, run in runs(pathlib.Path(folder)).items()}
    if given.write:
        COUNTS.write_text(json.dumps({"rustc": compiler, "instructions": counted}, indent=1) + "\n")
        print(f"{COUNTS.relative_to(ROOT)}: {len(counted)} runs")
        return
    kept = json.loads(COUNTS.read_text())
    if kept["rustc"] != compiler:
        print(f"not compared: the counts are those of rustc {kept['rustc']}, this is {compiler}")
        return
    failed = []
    for name, instructions in counted.items():
        ratio = instructions / kept["instructions"][name]
        print(f"{name:<26} {instructions:>14,} {100 * (ratio - 1):+6.1f} %")
        if ratio > MOST:
            failed.append(name)
    if failed:
        sys.exit(f"more than {MOST - 1:.0%} above benches/instructions/counts.json: {', '.join(failed)}; see --help")


if __name__ == "__main__":
    main()
