//! The options of a table.

use arrow::datatypes::TimeUnit;

use super::layout::{Kind, Layout};
use super::model::Parameters;
use crate::catalog::Options;
use crate::connector::assembly::millis;
use crate::connector::datagen::Pace;
use crate::connector::format::time_text::parse_timestamp;
use crate::connector::options::OptionReader;
use crate::error::Error;

/// The options, with Flink's names where Flink has them.
pub(super) const KEYS: &[&str] = &[
    "table",
    "events.num",
    "bounded",
    "first-event.rate",
    "next-event.rate",
    "first-event.time",
    "max-disorder",
    "events-per-second",
    "number-of-splits",
    "seed",
    "person.proportion",
    "auction.proportion",
    "bid.proportion",
    "bid.hot-ratio.auctions",
    "bid.hot-ratio.bidders",
    "auction.hot-ratio.sellers",
];

const KINDS: [(&str, Option<Kind>); 4] = [
    ("events", None),
    ("person", Some(Kind::Person)),
    ("auction", Some(Kind::Auction)),
    ("bid", Some(Kind::Bid)),
];

/// The end of the year 9999.
const LAST_US: i64 = 253_402_300_799_999_999;

/// What the options say.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The events that are rows; `None`: all.
    pub(super) kind: Option<Kind>,
    /// Events of all kinds; `None`: there is no end.
    pub(super) events: Option<u64>,
    /// Planned as a table that ends.
    pub(super) bounded: bool,
    /// By the clock; `None`: as fast as it goes.
    pub(super) pace: Option<Pace>,
    pub(super) splits: u64,
    pub(super) parameters: Parameters,
}

impl Settings {
    /// # Errors
    /// `C001` for an option that is not known, `C002` for a value that can't be used.
    pub(super) fn read(options: &Options) -> Result<Self, Error> {
        let reader = OptionReader::new("connector \"nexmark\"", options, &[KEYS])?;
        let number = |key: &str, least: i64, most: i64, default: u64| -> Result<u64, Error> {
            Ok(reader.integer(key, least..=most)?.map_or(default, i64::unsigned_abs))
        };
        let words = KINDS.map(|(word, _)| word);
        let kind = reader.choice("table", &words)?.and_then(|index| KINDS[index].1);
        let events = match number("events.num", 0, i64::MAX, 0)? {
            0 => None,
            events => Some(events),
        };
        let bounded = match (reader.boolean("bounded")?, events) {
            (Some(true), None) => {
                return Err(reader
                    .invalid("bounded", "needs a number of events")
                    .hint("Set 'events.num', or remove 'bounded'."));
            }
            (bounded, events) => bounded.unwrap_or(events.is_some()),
        };
        let rate = number("first-event.rate", 1, 1_000_000_000, 10_000)?;
        if number("next-event.rate", 1, 1_000_000_000, rate)? != rate {
            return Err(reader
                .invalid("next-event.rate", format_args!("is not the rate of the first event, {rate}"))
                .hint("Remove it: a rate that changes is not supported."));
        }
        let start_us = match reader.text("first-event.time").unwrap_or("2024-01-01 00:00:00") {
            "now" => millis(std::time::SystemTime::now()).map(|ms| ms * 1_000),
            text => parse_timestamp(text.as_bytes())
                .filter(|reading| reading.offset.is_none_or(|offset| offset == 0))
                .and_then(|reading| reading.in_unit(TimeUnit::Microsecond)),
        };
        let start_us =
            start_us.ok_or_else(|| reader.invalid("first-event.time", "is neither a TIMESTAMP nor now"))?;
        let layout = Layout {
            persons: number("person.proportion", 1, 1_000_000, 1)?,
            auctions: number("auction.proportion", 1, 1_000_000, 3)?,
            bids: number("bid.proportion", 1, 1_000_000, 46)?,
        };
        let parameters = Parameters {
            layout,
            seed: reader.integer("seed", i64::MIN..=i64::MAX)?.unwrap_or(0) as u64,
            rate,
            start_us,
            disorder_us: reader.duration_us("max-disorder")?.unwrap_or(0).unsigned_abs(),
            hot_auctions: number("bid.hot-ratio.auctions", 1, 1_000_000, 2)?,
            hot_bidders: number("bid.hot-ratio.bidders", 1, 1_000_000, 4)?,
            hot_sellers: number("auction.hot-ratio.sellers", 1, 1_000_000, 4)?,
        };
        if events.is_some_and(|events| parameters.ordered_us(events - 1) > LAST_US) {
            return Err(reader
                .invalid("events.num", "takes the time of events past the year 9999")
                .hint("Raise 'first-event.rate', or generate fewer events."));
        }
        let pace = match number("events-per-second", 0, 1_000_000_000, 0)? {
            0 => None,
            rate => Some(Pace::by_rate(rate)),
        };
        let splits = number("number-of-splits", 1, 64, 1)?;
        Ok(Self { kind, events, bounded, pace, splits, parameters })
    }
}
