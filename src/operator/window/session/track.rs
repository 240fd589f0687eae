//! Which rows make a session, by their times alone.
//!
//! A row opens `[time, time + gap)`. Sessions of a partition that touch or overlap are one. What the
//! watermark has passed is closed and, when the allowed lateness is over, too, takes no more rows:
//! [`Tracker::next_due`] stands before each row, so a session ends at the same row however the rows are
//! cut into batches.

mod state;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::chain::Chain;
pub(super) use state::Totals;

/// An end that a session has had, its number, and its place.
type End = (i64, u64, u32);

/// No session.
const NONE: u32 = u32::MAX;

/// A session with what it keeps.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// The time of its first row.
    pub(super) start: i64,
    /// One gap after its last row.
    pub(super) end: i64,
    /// Rows that have not been folded into states.
    pub(super) rows: Chain,
    /// States of its groups.
    pub(super) states: Chain,
    /// Rows that it took, those in states too.
    pub(super) rows_total: u64,
    /// No other session has it.
    pub(super) number: u64,
    /// The watermark has passed its end; it takes rows as long as its lateness lasts.
    pub(super) is_closed: bool,
    partition: u32,
    /// When the tracker looks at it next: it closes, or is over, then or later.
    due: i64,
}

/// Where a row went.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) session: u32,
    /// A session that became part of this one.
    pub(super) absorbed: Option<Session>,
}

/// What time does to a session.
#[derive(Debug)]
pub(super) enum Due {
    /// The watermark has passed its end; its lateness lasts.
    Closed { number: u64, end: i64 },
    /// It takes no more rows.
    Over(Session),
}

impl Due {
    /// The session, if it is over.
    pub(super) fn over(self) -> Option<Session> {
        match self {
            Self::Over(session) => Some(session),
            Self::Closed { .. } => None,
        }
    }
}

/// The open sessions of a partition.
#[derive(Debug, Clone, Copy)]
struct Partition {
    /// The last of them, which most rows belong to.
    latest: u32,
    /// How many are in [`Tracker::older`].
    older: u32,
    is_free: bool,
}

/// The open sessions of all partitions.
///
/// A row costs a look at the latest session of its partition; a tree is asked only where a partition
/// has several. Closing costs a step in a heap, once for each time that a session's end was seen to
/// be over or has moved.
pub(super) struct Tracker {
    gap_us: i64,
    unit_us: i64,
    lateness_us: i64,
    watermark: i64,
    partitions: Vec<Partition>,
    free_partitions: Vec<u32>,
    idle_partitions: usize,
    /// Open sessions but the latest of each partition, by start.
    older: BTreeMap<(u32, i64), u32>,
    sessions: Vec<Option<Session>>,
    free_sessions: Vec<u32>,
    /// When to look at each session; what its [`Session::due`] does not say is of no use any more.
    due: BinaryHeap<Reverse<End>>,
    sessions_total: u64,
}

impl Tracker {
    /// `lateness_us`: how long a session that has closed takes rows.
    pub(super) fn new(gap_us: i64, unit_us: i64, lateness_us: i64) -> Self {
        Self {
            gap_us,
            unit_us,
            lateness_us,
            watermark: i64::MIN,
            partitions: Vec::new(),
            free_partitions: Vec::new(),
            idle_partitions: 0,
            older: BTreeMap::new(),
            sessions: Vec::new(),
            free_sessions: Vec::new(),
            due: BinaryHeap::new(),
            sessions_total: 0,
        }
    }

    /// The last instant of a session that ends at `end`.
    pub(super) fn close(&self, end: i64) -> i64 {
        end.saturating_sub(self.unit_us)
    }

    /// The end of a session of one row.
    pub(super) fn end_of(&self, time: i64) -> i64 {
        time.saturating_add(self.gap_us)
    }

    /// The watermark from which on a session that ends at `end` takes no more rows.
    pub(super) fn over(&self, end: i64) -> i64 {
        self.close(end).saturating_add(self.lateness_us)
    }

    /// The next session that `watermark` has an effect on, in the order of event time; `None` when there
    /// is no more. It never falls, and rows come after that.
    pub(super) fn next_due(&mut self, watermark: i64) -> Option<Due> {
        while let Some(&Reverse((time, number, id))) = self.due.peek()
            && time <= watermark
        {
            self.due.pop();
            let Some(session) = &self.sessions[id as usize] else { continue };
            if session.number != number || session.due != time {
                continue;
            }
            let end = session.end;
            let closes = !session.is_closed && self.close(end) <= time;
            let due = if session.is_closed || closes { self.over(end) } else { self.close(end) };
            if due <= time {
                return self.end(id).map(Due::Over);
            }
            if let Some(session) = &mut self.sessions[id as usize] {
                session.due = due;
                session.is_closed |= closes;
                self.due.push(Reverse((due, number, id)));
            }
            if closes {
                return Some(Due::Closed { number, end });
            }
        }
        self.watermark = self.watermark.max(watermark);
        None
    }

    /// A watermark before which none has an effect.
    pub(super) fn next_watermark(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((time, ..))| *time)
    }

    /// Takes a session out.
    fn end(&mut self, id: u32) -> Option<Session> {
        let session = self.remove(id)?;
        let partition = &mut self.partitions[session.partition as usize];
        if partition.latest == id {
            partition.latest = NONE;
        } else {
            partition.older -= 1;
            self.older.remove(&(session.partition, session.start));
        }
        if partition.latest == NONE && partition.older == 0 {
            self.idle_partitions += 1;
        }
        Some(session)
    }

    /// Puts a row of a partition into its session. `None`: it touches no open session, and its own
    /// is over.
    pub(super) fn place(&mut self, partition: u32, time: i64) -> Option<Placed> {
        let end = self.end_of(time);
        let latest = self.partitions[partition as usize].latest;
        let Some((start_of_latest, end_of_latest)) = self.bounds(latest) else {
            let id = self.open(partition, time, end)?;
            self.idle_partitions -= 1;
            self.partitions[partition as usize].latest = id;
            return Some(Placed { session: id, absorbed: None });
        };
        if time > end_of_latest {
            let id = self.open(partition, time, end)?;
            self.partitions[partition as usize].latest = id;
            self.partitions[partition as usize].older += 1;
            self.older.insert((partition, start_of_latest), latest);
            return Some(Placed { session: id, absorbed: None });
        }
        if end >= start_of_latest {
            let mut absorbed = None;
            if time < start_of_latest && self.partitions[partition as usize].older > 0 {
                absorbed = self.absorb_before(partition, start_of_latest, time, latest);
            }
            self.extend(latest, time, end);
            return Some(Placed { session: latest, absorbed });
        }
        self.place_older(partition, time, end)
    }

    /// A row that does not reach the latest session of its partition.
    fn place_older(&mut self, partition: u32, time: i64, end: i64) -> Option<Placed> {
        let found = self.older.range((partition, i64::MIN)..=(partition, end)).next_back();
        let found = found.map(|(&(_, start), &id)| (start, id));
        let touched = found.filter(|(_, id)| self.bounds(*id).is_some_and(|(_, last)| last >= time));
        let Some((start, id)) = touched else {
            let id = self.open(partition, time, end)?;
            self.partitions[partition as usize].older += 1;
            self.older.insert((partition, time), id);
            return Some(Placed { session: id, absorbed: None });
        };
        let mut absorbed = None;
        if time < start {
            absorbed = self.absorb_before(partition, start, time, id);
        }
        self.extend(id, time, end);
        if let Some((moved, _)) = self.bounds(id)
            && moved != start
        {
            self.older.remove(&(partition, start));
            self.older.insert((partition, moved), id);
        }
        Some(Placed { session: id, absorbed })
    }

    /// Joins the session before `start` to `into` if a row at `time` touches it.
    fn absorb_before(&mut self, partition: u32, start: i64, time: i64, into: u32) -> Option<Session> {
        let (&key, &id) = self.older.range((partition, i64::MIN)..(partition, start)).next_back()?;
        if self.bounds(id)?.1 < time {
            return None;
        }
        self.older.remove(&key);
        self.partitions[partition as usize].older -= 1;
        let gone = self.remove(id)?;
        self.extend(into, gone.start, gone.end);
        if let Some(session) = &mut self.sessions[into as usize] {
            session.rows_total += gone.rows_total;
        }
        Some(gone)
    }

    fn bounds(&self, id: u32) -> Option<(i64, i64)> {
        let session = self.sessions.get(id as usize)?.as_ref()?;
        Some((session.start, session.end))
    }

    fn extend(&mut self, id: u32, start: i64, end: i64) {
        let watermark = self.watermark;
        let close = |end: i64| end.saturating_sub(self.unit_us);
        let Some(session) = &mut self.sessions[id as usize] else { return };
        session.start = session.start.min(start);
        session.end = session.end.max(end);
        if session.is_closed && close(session.end) > watermark {
            session.is_closed = false;
            session.due = close(session.end);
            self.due.push(Reverse((session.due, session.number, id)));
        }
    }

    fn open(&mut self, partition: u32, start: i64, end: i64) -> Option<u32> {
        if self.over(end) <= self.watermark {
            return None;
        }
        let number = self.sessions_total;
        self.sessions_total += 1;
        let is_closed = self.close(end) <= self.watermark;
        let due = if is_closed { self.over(end) } else { self.close(end) };
        let (rows, states) = (Chain::default(), Chain::default());
        let session =
            Some(Session { start, end, rows, states, rows_total: 0, number, is_closed, partition, due });
        let id = match self.free_sessions.pop() {
            Some(id) => {
                self.sessions[id as usize] = session;
                id
            }
            None => {
                self.sessions.push(session);
                self.sessions.len() as u32 - 1
            }
        };
        self.due.push(Reverse((due, number, id)));
        Some(id)
    }

    fn remove(&mut self, id: u32) -> Option<Session> {
        self.free_sessions.push(id);
        self.sessions[id as usize].take()
    }

    /// Open sessions, about those that end first: an end that has moved is looked at as it was. `most` of
    /// them, by their end.
    pub(super) fn first_to_end(&self, most: usize) -> Vec<&Session> {
        let ends = self.due.as_slice();
        // The heap from its top down.
        let mut next: BinaryHeap<(Reverse<End>, usize)> =
            ends.first().map(|first| (*first, 0)).into_iter().collect();
        let mut found: Vec<&Session> = Vec::new();
        while let Some((Reverse((time, number, id)), place)) = next.pop()
            && found.len() < most
        {
            next.extend([2 * place + 1, 2 * place + 2].iter().filter_map(|at| Some((*ends.get(*at)?, *at))));
            let session = self.sessions[id as usize].as_ref();
            found.extend(session.filter(|session| session.number == number && session.due == time));
        }
        found.sort_by_key(|session| (session.end, session.number));
        found.dedup_by_key(|session| session.number);
        found
    }

    /// An open session.
    pub(super) fn session(&mut self, id: u32) -> Option<&mut Session> {
        self.sessions[id as usize].as_mut()
    }

    /// All sessions that are not over.
    pub(super) fn sessions(&mut self) -> impl Iterator<Item = &mut Session> {
        self.sessions.iter_mut().flatten()
    }

    /// Number of open sessions.
    pub(super) fn len(&self) -> usize {
        self.sessions.len() - self.free_sessions.len()
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.partitions.capacity() * size_of::<Partition>()
            + self.sessions.capacity() * size_of::<Option<Session>>()
            + self.due.capacity() * size_of::<End>()
            + self.older.len() * size_of::<(u32, i64, u32)>()
    }

    /// A new partition without sessions.
    pub(super) fn add_partition(&mut self) -> u32 {
        self.idle_partitions += 1;
        let partition = Partition { latest: NONE, older: 0, is_free: false };
        match self.free_partitions.pop() {
            Some(number) => {
                self.partitions[number as usize] = partition;
                number
            }
            None => {
                self.partitions.push(partition);
                self.partitions.len() as u32 - 1
            }
        }
    }

    /// Number of partitions.
    pub(super) fn partitions(&self) -> usize {
        self.partitions.len() - self.free_partitions.len()
    }

    /// Number of partitions without open sessions.
    pub(super) fn idle_partitions(&self) -> usize {
        self.idle_partitions
    }

    /// Gives up a partition if it has no open session; whether it was so.
    pub(super) fn drop_if_idle(&mut self, number: u32) -> bool {
        let partition = &mut self.partitions[number as usize];
        let is_idle = partition.latest == NONE && partition.older == 0 && !partition.is_free;
        if is_idle {
            partition.is_free = true;
            self.idle_partitions -= 1;
            self.free_partitions.push(number);
        }
        is_idle
    }
}
