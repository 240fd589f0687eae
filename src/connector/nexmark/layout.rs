//! Which event is what: persons, auctions and bids take turns in a fixed order.

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Person,
    Auction,
    Bid,
}

/// How many events of each kind make a round: first the persons, then the auctions, then the bids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) persons: u64,
    pub(super) auctions: u64,
    pub(super) bids: u64,
}

/// An event by its number, from 0, and the round that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) number: u64,
    pub(super) round: u64,
}

impl Layout {
    /// Events of a round.
    pub(super) fn total(&self) -> u64 {
        self.persons + self.auctions + self.bids
    }

    /// Where the events of a kind begin in a round, and how many they are. `None`: all kinds.
    pub(super) fn part(&self, kind: Option<Kind>) -> (u64, u64) {
        match kind {
            None => (0, self.total()),
            Some(Kind::Person) => (0, self.persons),
            Some(Kind::Auction) => (self.persons, self.auctions),
            Some(Kind::Bid) => (self.persons + self.auctions, self.bids),
        }
    }

    /// How many of the first `events` events are of the kind.
    pub(super) fn rows(&self, kind: Option<Kind>, events: u64) -> u64 {
        let (first, size) = self.part(kind);
        let (rounds, rest) = (events / self.total(), events % self.total());
        rounds * size + rest.saturating_sub(first).min(size)
    }

    /// What the event is.
    pub(super) fn kind(&self, event: Event) -> Kind {
        let place = event.number - event.round * self.total();
        if place < self.persons {
            Kind::Person
        } else if place < self.persons + self.auctions {
            Kind::Auction
        } else {
            Kind::Bid
        }
    }

    /// The last person, from 0, that is there when the event comes: itself, if it is one.
    pub(super) fn last_person(&self, event: Event) -> u64 {
        let place = event.number - event.round * self.total();
        event.round * self.persons + place.min(self.persons - 1)
    }

    /// The last auction, from 0, that is there when an auction or bid comes: itself, if it is one.
    pub(super) fn last_auction(&self, event: Event) -> u64 {
        let place = event.number - event.round * self.total();
        event.round * self.auctions + place.saturating_sub(self.persons).min(self.auctions - 1)
    }
}

/// The events of a kind that a split has: one in so many of them.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    layout: Layout,
    first: u64,
    size: u64,
    step: u64,
    round: u64,
    place: u64,
}

impl Walk {
    /// The rows `start`, `start + step`, … of the table of a kind.
    pub(super) fn new(layout: Layout, kind: Option<Kind>, start: u64, step: u64) -> Self {
        let (first, size) = layout.part(kind);
        Self { layout, first, size, step, round: start / size, place: start % size }
    }

    /// The event of the next row.
    pub(super) fn next(&mut self) -> Event {
        let round = self.round;
        let number = round * self.layout.total() + self.first + self.place;
        self.place += self.step;
        while self.place >= self.size {
            self.place -= self.size;
            self.round += 1;
        }
        Event { number, round }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { persons: 2, auctions: 3, bids: 5 };

    fn event(number: u64) -> Event {
        Event { number, round: number / LAYOUT.total() }
    }

    fn numbers(kind: Option<Kind>, start: u64, step: u64, count: usize) -> Vec<u64> {
        let mut walk = Walk::new(LAYOUT, kind, start, step);
        (0..count)
            .map(|_| walk.next())
            .inspect(|found| assert_eq!(*found, event(found.number)))
            .map(|e| e.number)
            .collect()
    }

    #[test]
    fn kinds_take_turns() {
        let kinds: Vec<_> = (0..12).map(|number| LAYOUT.kind(event(number))).collect();
        assert_eq!(kinds[..5], [Kind::Person, Kind::Person, Kind::Auction, Kind::Auction, Kind::Auction]);
        assert_eq!(kinds[5..], [[Kind::Bid; 5].as_slice(), &[Kind::Person; 2]].concat());
        assert_eq!(numbers(Some(Kind::Person), 0, 1, 3), [0, 1, 10]);
        assert_eq!(numbers(Some(Kind::Auction), 0, 1, 4), [2, 3, 4, 12]);
        assert_eq!(numbers(Some(Kind::Bid), 0, 1, 6), [5, 6, 7, 8, 9, 15]);
        assert_eq!(numbers(None, 0, 1, 3), [0, 1, 2]);
        // Three splits of the auctions.
        assert_eq!(numbers(Some(Kind::Auction), 0, 4, 3), [2, 13, 24]);
        assert_eq!(numbers(Some(Kind::Auction), 3, 4, 2), [12, 23]);
        assert_eq!(numbers(Some(Kind::Auction), 1, 7, 3), [3, 24, 52]);
    }

    #[test]
    fn rows_are_counted() {
        let counts = [None, Some(Kind::Person), Some(Kind::Auction), Some(Kind::Bid)];
        let of = |events| counts.map(|kind| LAYOUT.rows(kind, events));
        assert_eq!(of(0), [0, 0, 0, 0]);
        assert_eq!(of(1), [1, 1, 0, 0]);
        assert_eq!(of(4), [4, 2, 2, 0]);
        assert_eq!(of(6), [6, 2, 3, 1]);
        assert_eq!(of(20), [20, 4, 6, 10]);
    }

    #[test]
    fn the_last_ones_before_an_event() {
        // The second person of round 1, its first auction, its first and last bid.
        let of = |number| (LAYOUT.last_person(event(number)), LAYOUT.last_auction(event(number)));
        assert_eq!(LAYOUT.last_person(event(11)), 3);
        assert_eq!(LAYOUT.last_person(event(10)), 2);
        assert_eq!([of(12), of(15), of(19)], [(3, 3), (3, 5), (3, 5)]);
    }
}
