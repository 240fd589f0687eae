//! The columns that tables can have, and how they are made.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};

use super::layout::{Event, Kind};
use super::model::{Draw, Model};
use super::text::{Channels, Pool};
use crate::connector::format::time_text::ticks;
use crate::connector::random::{Stream, below};
use crate::error::Error;

/// A column of one kind of event, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    EventNumber,
    EventType,
    DateTime,
    Extra(Kind),
    PersonId,
    Name,
    EmailAddress,
    CreditCard,
    City,
    State,
    AuctionId,
    ItemName,
    Description,
    InitialBid,
    Reserve,
    Expires,
    Seller,
    Category,
    BidAuction,
    Bidder,
    Price,
    Channel,
    Url,
}

/// What a column may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Int,
    BigInt,
    Text,
    Time,
}

impl Shape {
    /// Whether a column of this type can be filled.
    pub(super) fn fits(self, data_type: &DataType) -> bool {
        match self {
            Self::Int => matches!(data_type, DataType::Int32),
            Self::BigInt => matches!(data_type, DataType::Int64),
            Self::Text => matches!(data_type, DataType::Utf8),
            Self::Time => {
                matches!(data_type, DataType::Timestamp(unit, _) if *unit != TimeUnit::Nanosecond)
            }
        }
    }

    /// As SQL writes it.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::BigInt => "BIGINT",
            Self::Text => "STRING",
            Self::Time => "TIMESTAMP(p) with p up to 6",
        }
    }

    /// The type of a column that is not declared.
    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Int => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Text => DataType::Utf8,
            Self::Time => DataType::Timestamp(TimeUnit::Millisecond, None),
        }
    }
}

/// A name, what it stands for, what type it has.
pub(super) type Named = (&'static str, Field, Shape);

const PERSON: [Named; 8] = [
    ("id", Field::PersonId, Shape::BigInt),
    ("name", Field::Name, Shape::Text),
    ("emailAddress", Field::EmailAddress, Shape::Text),
    ("creditCard", Field::CreditCard, Shape::Text),
    ("city", Field::City, Shape::Text),
    ("state", Field::State, Shape::Text),
    ("dateTime", Field::DateTime, Shape::Time),
    ("extra", Field::Extra(Kind::Person), Shape::Text),
];
const AUCTION: [Named; 10] = [
    ("id", Field::AuctionId, Shape::BigInt),
    ("itemName", Field::ItemName, Shape::Text),
    ("description", Field::Description, Shape::Text),
    ("initialBid", Field::InitialBid, Shape::BigInt),
    ("reserve", Field::Reserve, Shape::BigInt),
    ("dateTime", Field::DateTime, Shape::Time),
    ("expires", Field::Expires, Shape::Time),
    ("seller", Field::Seller, Shape::BigInt),
    ("category", Field::Category, Shape::BigInt),
    ("extra", Field::Extra(Kind::Auction), Shape::Text),
];
const BID: [Named; 7] = [
    ("auction", Field::BidAuction, Shape::BigInt),
    ("bidder", Field::Bidder, Shape::BigInt),
    ("price", Field::Price, Shape::BigInt),
    ("channel", Field::Channel, Shape::Text),
    ("url", Field::Url, Shape::Text),
    ("dateTime", Field::DateTime, Shape::Time),
    ("extra", Field::Extra(Kind::Bid), Shape::Text),
];

/// The columns of a kind of event, in their order.
pub(super) fn columns(kind: Kind) -> &'static [Named] {
    match kind {
        Kind::Person => &PERSON,
        Kind::Auction => &AUCTION,
        Kind::Bid => &BID,
    }
}

/// Texts that are made once for all rows, where a column needs them.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts {
    letters: Option<Arc<Pool>>,
    words: Option<Arc<Pool>>,
    channels: Option<Arc<Channels>>,
}

impl Texts {
    /// Those that these columns need.
    pub(super) fn new(model: &Model, fields: &[Field]) -> Self {
        let has = |wanted: fn(&Field) -> bool| fields.iter().any(wanted);
        let stream = |draw| model.parameters.stream(draw);
        let letters = has(|field| matches!(field, Field::Extra(_) | Field::EmailAddress));
        let words = has(|field| matches!(field, Field::ItemName | Field::Description));
        let channels = has(|field| matches!(field, Field::Channel | Field::Url));
        Self {
            letters: letters.then(|| Arc::new(Pool::new(stream(Draw::Letters), false))),
            words: words.then(|| Arc::new(Pool::new(stream(Draw::Words), true))),
            channels: channels.then(|| Arc::new(Channels::new(stream(Draw::Channels)))),
        }
    }
}

/// Made up like in the generators of Beam and Flink.
const FIRST_NAMES: [&str; 11] =
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];
const LAST_NAMES: [&str; 9] =
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
const CITIES: [&str; 10] = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
];
const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];

impl Field {
    /// The column of these events, with the type that it was declared with.
    ///
    /// # Errors
    /// None but internal ones.
    pub(super) fn column(
        self,
        model: &Model,
        texts: &Texts,
        events: &[Event],
        data_type: &DataType,
    ) -> Result<ArrayRef, Error> {
        let draws = |draw| model.parameters.stream(draw);
        Ok(match self {
            Self::EventNumber => integers(events, |event| event.number as i64),
            Self::EventType => {
                let kind = |event: &Event| model.parameters.layout.kind(*event) as i32;
                Arc::new(Int32Array::from_iter_values(events.iter().map(kind)))
            }
            Self::DateTime => times(events, data_type, |event| model.time_us(event))?,
            Self::Expires => times(events, data_type, |event| model.expires_us(event))?,
            Self::PersonId => integers(events, |event| model.person(event)),
            Self::AuctionId => integers(events, |event| model.auction(event)),
            Self::InitialBid => integers(events, |event| model.initial_bid(event)),
            Self::Reserve => integers(events, |event| model.reserve(event)),
            Self::Seller => integers(events, |event| model.seller(event)),
            Self::Category => integers(events, |event| model.category(event)),
            Self::BidAuction => integers(events, |event| model.bid_auction(event)),
            Self::Bidder => integers(events, |event| model.bidder(event)),
            Self::Price => integers(events, |event| model.price(event)),
            Self::Extra(kind) => {
                let letters = needed(&texts.letters)?;
                // What makes an event as long as in the public generator, on average: 200, 500, 100 bytes.
                let (least, range) = match kind {
                    Kind::Person => (110, 56),
                    Kind::Auction => (312, 156),
                    Kind::Bid => (54, 28),
                };
                drawn(events, draws(Draw::Extra), (least + range) as usize, |random| {
                    letters.part(random, least as usize + below(random.rotate_left(32), range) as usize)
                })
            }
            Self::ItemName => {
                let words = needed(&texts.words)?;
                drawn(events, draws(Draw::ItemName), 12, |random| words.words(random, 20))
            }
            Self::Description => {
                let words = needed(&texts.words)?;
                drawn(events, draws(Draw::Description), 52, |random| words.words(random, 100))
            }
            Self::Channel => {
                let channels = needed(&texts.channels)?;
                drawn(events, draws(Draw::Channel), 12, |random| channels.name(random))
            }
            Self::Url => {
                let channels = needed(&texts.channels)?;
                drawn(events, draws(Draw::Channel), 72, |random| channels.url(random))
            }
            Self::City => drawn(events, draws(Draw::City), 9, |random| one_of(&CITIES, random)),
            Self::State => drawn(events, draws(Draw::State), 2, |random| one_of(&STATES, random)),
            Self::Name => {
                let last_names = draws(Draw::LastName);
                written(events, draws(Draw::FirstName), |event, random, text| {
                    let last = one_of(&LAST_NAMES, last_names.at(event.number));
                    write!(text, "{} {last}", one_of(&FIRST_NAMES, random))
                })?
            }
            Self::EmailAddress => {
                let letters = needed(&texts.letters)?;
                written(events, draws(Draw::Email), |_, random, text| {
                    // 3 to 6 letters and 3 to 4.
                    let name = letters.part(random, 3 + below(random.rotate_left(32), 4) as usize);
                    let host = random.rotate_left(16);
                    let host = letters.part(host, 3 + below(host.rotate_left(32), 2) as usize);
                    write!(text, "{name}@{host}.com")
                })?
            }
            Self::CreditCard => written(events, draws(Draw::CreditCard), |_, random, text| {
                let [a, b, c, d] = [0, 16, 32, 48].map(|bits| below(random.rotate_left(bits), 10_000));
                write!(text, "{a:04} {b:04} {c:04} {d:04}")
            })?,
        })
    }
}

fn needed<T>(texts: &Option<Arc<T>>) -> Result<&T, Error> {
    texts.as_deref().ok_or_else(|| Error::internal("nexmark", "texts were not made"))
}

fn one_of<'a>(names: &[&'a str], random: u64) -> &'a str {
    names[below(random, names.len() as u64) as usize]
}

fn integers(events: &[Event], value: impl Fn(Event) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(events.iter().map(|event| value(*event))))
}

/// Times from microseconds.
fn times(events: &[Event], data_type: &DataType, value: impl Fn(Event) -> i64) -> Result<ArrayRef, Error> {
    let DataType::Timestamp(unit, _) = data_type else {
        return Err(Error::internal("nexmark", format!("a time as {data_type}")));
    };
    let divisor = 1_000_000 / ticks(*unit);
    let values = events.iter().map(|event| value(*event).div_euclid(divisor));
    cast(&Int64Array::from_iter_values(values), data_type).map_err(|error| Error::internal("nexmark", error))
}

/// Texts that are there, one drawn for each event. `bytes`: about their length.
fn drawn<'a>(events: &[Event], draws: Stream, bytes: usize, value: impl Fn(u64) -> &'a str) -> ArrayRef {
    let mut texts = StringBuilder::with_capacity(events.len(), events.len() * bytes);
    for event in events {
        texts.append_value(value(draws.at(event.number)));
    }
    Arc::new(texts.finish())
}

/// Texts that are put together.
fn written(
    events: &[Event],
    draws: Stream,
    value: impl Fn(Event, u64, &mut StringBuilder) -> std::fmt::Result,
) -> Result<ArrayRef, Error> {
    let mut texts = StringBuilder::with_capacity(events.len(), events.len() * 20);
    for event in events {
        value(*event, draws.at(event.number), &mut texts)
            .map_err(|error| Error::internal("nexmark", error))?;
        texts.append_value("");
    }
    Ok(Arc::new(texts.finish()))
}
