//! What an event says: a function of the seed and its number.

use super::layout::{Event, Layout};
use crate::connector::random::{Stream, below, exp, unit};

/// The first id of persons and auctions.
const FIRST_ID: u64 = 1_000;
const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;
/// One in so many persons and auctions is hot for as long as the next so many come.
const HOT_EVERY: u64 = 100;
/// Persons that act, of the last ones.
const ACTIVE_PERSONS: u64 = 1_000;
/// Auctions that get bids, of the last ones; an auction is open for about so many others.
const OPEN_AUCTIONS: u64 = 100;
/// Ids that are used before their person or auction has come.
const LEAD: u64 = 10;

/// What is drawn for an event; each has a stream of its own, so that a column that is not read costs nothing.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(super) enum Draw {
    Disorder,
    HotSeller,
    Seller,
    Category,
    InitialBid,
    Reserve,
    Length,
    ItemName,
    Description,
    HotAuction,
    Auction,
    HotBidder,
    Bidder,
    Price,
    Channel,
    FirstName,
    LastName,
    Email,
    CreditCard,
    City,
    State,
    Extra,
    // Of the texts that rows have parts of.
    Letters,
    Words,
    Channels,
}

/// The settings that events depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    pub(super) layout: Layout,
    pub(super) seed: u64,
    /// Events per second of event time.
    pub(super) rate: u64,
    pub(super) start_us: i64,
    pub(super) disorder_us: u64,
    pub(super) hot_auctions: u64,
    pub(super) hot_bidders: u64,
    pub(super) hot_sellers: u64,
}

impl Parameters {
    /// The time of an event before it is put into disorder, in microseconds. Far beyond the last year it stops.
    pub(super) fn ordered_us(&self, number: u64) -> i64 {
        const SECOND_US: u64 = 1_000_000;
        let passed = match SECOND_US % self.rate {
            0 => number.saturating_mul(SECOND_US / self.rate),
            _ => {
                let seconds = (number / self.rate).saturating_mul(SECOND_US);
                // Below the rate, which is at most 10^9: the product fits.
                seconds.saturating_add(number % self.rate * SECOND_US / self.rate)
            }
        };
        self.start_us.saturating_add_unsigned(passed)
    }

    /// The stream of what is drawn.
    pub(super) fn stream(&self, draw: Draw) -> Stream {
        Stream::new(self.seed, draw as u64)
    }
}

/// Makes the values of events.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) parameters: Parameters,
    prices: Prices,
}

impl Model {
    pub(super) fn new(parameters: Parameters) -> Self {
        Self { parameters, prices: Prices::new() }
    }

    /// The number drawn for an event.
    pub(super) fn draw(&self, draw: Draw, event: Event) -> u64 {
        self.parameters.stream(draw).at(event.number)
    }

    /// The time of an event, in microseconds.
    pub(super) fn time_us(&self, event: Event) -> i64 {
        let ordered = self.parameters.ordered_us(event.number);
        match self.parameters.disorder_us {
            0 => ordered,
            most => ordered.saturating_sub_unsigned(below(self.draw(Draw::Disorder, event), most + 1)),
        }
    }

    pub(super) fn person(&self, event: Event) -> i64 {
        id(self.parameters.layout.last_person(event))
    }

    pub(super) fn auction(&self, event: Event) -> i64 {
        id(self.parameters.layout.last_auction(event))
    }

    /// A person that acts now, or soon.
    fn active_person(&self, random: u64, last: u64) -> u64 {
        let active = (last + 1).min(ACTIVE_PERSONS);
        last + 1 - active + below(random, active + LEAD)
    }

    /// Who sells: mostly the hot one of the last persons.
    pub(super) fn seller(&self, event: Event) -> i64 {
        let last = self.parameters.layout.last_person(event);
        id(match below(self.draw(Draw::HotSeller, event), self.parameters.hot_sellers) {
            0 => self.active_person(self.draw(Draw::Seller, event), last),
            _ => last / HOT_EVERY * HOT_EVERY,
        })
    }

    /// Who bids: mostly the one after the hot seller.
    pub(super) fn bidder(&self, event: Event) -> i64 {
        let last = self.parameters.layout.last_person(event);
        id(match below(self.draw(Draw::HotBidder, event), self.parameters.hot_bidders) {
            0 => self.active_person(self.draw(Draw::Bidder, event), last),
            _ => last / HOT_EVERY * HOT_EVERY + 1,
        })
    }

    /// What is bid for: often the hot one of the last auctions, else one that is open, or will be soon.
    pub(super) fn bid_auction(&self, event: Event) -> i64 {
        let last = self.parameters.layout.last_auction(event);
        id(match below(self.draw(Draw::HotAuction, event), self.parameters.hot_auctions) {
            0 => {
                let first = last.saturating_sub(OPEN_AUCTIONS);
                first + below(self.draw(Draw::Auction, event), last - first + 1 + LEAD)
            }
            _ => last / HOT_EVERY * HOT_EVERY,
        })
    }

    pub(super) fn category(&self, event: Event) -> i64 {
        (FIRST_CATEGORY + below(self.draw(Draw::Category, event), CATEGORIES)) as i64
    }

    pub(super) fn price(&self, event: Event) -> i64 {
        self.prices.price(self.draw(Draw::Price, event))
    }

    pub(super) fn initial_bid(&self, event: Event) -> i64 {
        self.prices.price(self.draw(Draw::InitialBid, event))
    }

    pub(super) fn reserve(&self, event: Event) -> i64 {
        self.initial_bid(event) + self.prices.price(self.draw(Draw::Reserve, event))
    }

    /// When an auction ends, in microseconds: on average when so many others have come as are open at once.
    pub(super) fn expires_us(&self, event: Event) -> i64 {
        let parameters = &self.parameters;
        let layout = &parameters.layout;
        let ahead = OPEN_AUCTIONS * layout.total() / layout.auctions;
        let until = parameters.ordered_us(event.number.saturating_add(ahead));
        let mean_ms = (until - parameters.ordered_us(event.number)).unsigned_abs() / 1_000;
        let length_ms = 1 + below(self.draw(Draw::Length, event), (2 * mean_ms).max(1));
        self.time_us(event).saturating_add_unsigned(1_000 * length_ms)
    }
}

fn id(from_zero: u64) -> i64 {
    from_zero.saturating_add(FIRST_ID) as i64
}

/// Prices from 1 to 1,000,000 dollars, in cents: each power of ten is as likely as the others.
#[derive(Debug, Clone)]
struct Prices {
    /// Powers of ten, from 10^0 to 10^1 in equal steps of the exponent.
    powers: Vec<f64>,
}

const STEPS: usize = 1_024;

impl Prices {
    fn new() -> Self {
        let power = |step: usize| 10.0 * exp((step as f64 / STEPS as f64 - 1.0) * std::f64::consts::LN_10);
        Self { powers: (0..=STEPS).map(power).collect() }
    }

    fn price(&self, random: u64) -> i64 {
        const TENS: [f64; 6] = [1e2, 1e3, 1e4, 1e5, 1e6, 1e7];
        let exponent = unit(random) * TENS.len() as f64;
        let decade = exponent as usize;
        let place = (exponent - decade as f64) * STEPS as f64;
        let step = place as usize;
        let share = place - step as f64;
        let power = self.powers[step] * (1.0 - share) + self.powers[step + 1] * share;
        (power * TENS[decade] + 0.5) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Kind, Walk};
    use super::*;

    const LAYOUT: Layout = Layout { persons: 1, auctions: 3, bids: 46 };

    fn model(seed: u64) -> Model {
        Model::new(Parameters {
            layout: LAYOUT,
            seed,
            rate: 1_000,
            start_us: 0,
            disorder_us: 0,
            hot_auctions: 2,
            hot_bidders: 4,
            hot_sellers: 4,
        })
    }

    fn events(kind: Kind, count: usize) -> Vec<Event> {
        let mut walk = Walk::new(LAYOUT, Some(kind), 0, 1);
        (0..count).map(|_| walk.next()).collect()
    }

    #[test]
    fn every_power_of_ten_has_its_share_of_prices() {
        let model = model(1);
        let mut shares = [0_i32; 6];
        for event in events(Kind::Bid, 60_000) {
            let price = model.price(event);
            assert!((100..=100_000_000).contains(&price), "{price}");
            shares[(price as f64 / 100.0).log10().min(5.9) as usize] += 1;
        }
        assert!(shares.iter().all(|share| (9_600..10_400).contains(share)), "{shares:?}");
        // Within a power of ten the middle of the logarithm is the middle of the prices.
        let prices = Prices::new();
        for (exponent, cents) in [(0.0, 100), (0.5, 316), (1.0, 1_000), (3.25, 177_828), (5.5, 31_622_777)] {
            let random = (exponent / 6.0 * 18_446_744_073_709_551_616.0) as u64 + (1 << 20);
            assert!((prices.price(random) - cents).abs() <= cents / 1_000_000 + 1, "{exponent}");
        }
        assert_eq!((prices.price(0), prices.price(u64::MAX)), (100, 100_000_000));
    }

    #[test]
    fn some_are_hot() {
        let model = model(2);
        let bids = events(Kind::Bid, 46_000);
        let (mut auctions, mut bidders) = (0, 0);
        for event in &bids {
            let (last_auction, last_person) = (LAYOUT.last_auction(*event), LAYOUT.last_person(*event));
            let (auction, bidder) = (model.bid_auction(*event), model.bidder(*event));
            auctions += i32::from(auction == id(last_auction / 100 * 100));
            bidders += i32::from(bidder == id(last_person / 100 * 100 + 1));
            assert!((id(last_auction.saturating_sub(100))..=id(last_auction + 10)).contains(&auction));
            assert!(
                (id(last_person.saturating_sub(999))..=id(last_person + 10).max(id(1))).contains(&bidder)
            );
        }
        // Half and three quarters, and those that are drawn by chance.
        assert!((22_800..24_500).contains(&auctions), "{auctions}");
        assert!((34_000..35_500).contains(&bidders), "{bidders}");
        let sold = events(Kind::Auction, 3_000);
        let hot = sold.iter().filter(|e| model.seller(**e) == id(LAYOUT.last_person(**e) / 100 * 100));
        assert!((2_170..2_400).contains(&hot.count()));
    }

    #[test]
    fn auctions_end_after_others_have_come() {
        let model = model(3);
        let auctions = events(Kind::Auction, 3_000);
        let (mut sum, mut categories) = (0, [0; 5]);
        for event in &auctions {
            // 1,666 events of 1 ms on average.
            let length = model.expires_us(*event) - model.time_us(*event);
            assert!((1_000..=3_333_000).contains(&length) && length % 1_000 == 0, "{length}");
            sum += length / 1_000;
            categories[(model.category(*event) - 10) as usize] += 1;
            assert!(model.reserve(*event) >= model.initial_bid(*event) + 100);
        }
        assert!((1_600..1_730).contains(&(sum / 3_000)), "{sum}");
        assert!(categories.iter().all(|count| (500..700).contains(count)), "{categories:?}");
    }

    #[test]
    fn times_follow_the_rate() {
        let mut parameters = model(0).parameters;
        assert_eq!([0, 1, 1_500].map(|number| parameters.ordered_us(number)), [0, 1_000, 1_500_000]);
        // 3 events a second; more than one a microsecond.
        parameters.rate = 3;
        assert_eq!(
            [1, 2, 3, 4].map(|number| parameters.ordered_us(number)),
            [333_333, 666_666, 1_000_000, 1_333_333]
        );
        parameters.rate = 3_000_000;
        assert_eq!([2, 3, 4].map(|number| parameters.ordered_us(number)), [0, 1, 1]);
        parameters.rate = 1;
        assert_eq!(parameters.ordered_us(u64::MAX), i64::MAX);
        let model = Model::new(Parameters { disorder_us: 5_000, ..model(0).parameters });
        let behind = events(Kind::Bid, 1_000).into_iter().map(|e| e.number as i64 * 1_000 - model.time_us(e));
        let behind: Vec<_> = behind.collect();
        assert!(behind.iter().all(|us| (0..=5_000).contains(us)));
        assert!(behind.iter().max() > Some(&4_900) && behind.iter().min() < Some(&100));
    }
}
