//! Open sessions that are handed on and taken up.

use std::cmp::Reverse;

use super::{NONE, Session, Tracker};

/// The numbers of a [`Tracker`].
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Totals {
    pub(in super::super) watermark: i64,
    pub(in super::super) sessions_total: u64,
}

impl Session {
    /// The number of its partition.
    pub(in super::super) fn partition(&self) -> u32 {
        self.partition
    }

    /// When the tracker looks at it next.
    pub(in super::super) fn due(&self) -> i64 {
        self.due
    }

    /// The same session with another number.
    pub(in super::super) fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// A session that was kept, without rows and states.
    pub(in super::super) fn kept(
        partition: u32,
        (start, end): (i64, i64),
        (rows_total, number): (u64, u64),
        (is_closed, due): (bool, i64),
    ) -> Self {
        let (rows, states) = Default::default();
        Self { start, end, rows, states, rows_total, number, is_closed, partition, due }
    }
}

impl Tracker {
    pub(in super::super) fn totals(&self) -> Totals {
        Totals { watermark: self.watermark, sessions_total: self.sessions_total }
    }

    pub(in super::super) fn set_totals(&mut self, totals: Totals) {
        self.watermark = totals.watermark;
        self.sessions_total = totals.sessions_total;
    }

    /// The open sessions by their numbers.
    pub(in super::super) fn kept(&mut self) -> Vec<Session> {
        // What the heap says of sessions that are gone is of no use to those who take them up.
        let sessions = &self.sessions;
        self.due.retain(|Reverse((time, number, id))| {
            let session = sessions[*id as usize].as_ref();
            session.is_some_and(|session| session.number == *number && session.due == *time)
        });
        let mut kept: Vec<Session> = sessions.iter().flatten().cloned().collect();
        kept.sort_unstable_by_key(|session| session.number);
        kept
    }

    /// Takes up a session of a partition that has a number here; gives its place.
    pub(in super::super) fn restore(&mut self, session: Session) -> u32 {
        let id = self.sessions.len() as u32;
        let (number, start, due) = (session.partition, session.start, session.due);
        self.due.push(Reverse((due, session.number, id)));
        let latest = self.bounds(self.partitions[number as usize].latest);
        self.sessions.push(Some(session));
        let partition = &mut self.partitions[number as usize];
        // The session that begins last is the latest one.
        let older = match latest {
            None => {
                if partition.older == 0 {
                    self.idle_partitions -= 1;
                }
                partition.latest = id;
                None
            }
            Some((latest, _)) if latest < start => {
                Some((latest, std::mem::replace(&mut partition.latest, id)))
            }
            Some(_) => Some((start, id)),
        };
        debug_assert_ne!(partition.latest, NONE);
        if let Some((start, id)) = older {
            partition.older += 1;
            self.older.insert((number, start), id);
        }
        id
    }
}
