//! Slots of the rows of a key.

/// In the order of arrival, but for what [`swap_remove`](Slots::swap_remove) does. Mostly there is one.
#[derive(Debug, Default)]
pub(super) enum Slots {
    #[default]
    None,
    One(u32),
    Several(Vec<u32>),
}

impl Slots {
    pub(super) fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(slot) => std::slice::from_ref(slot),
            Self::Several(slots) => slots,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(super) fn push(&mut self, slot: u32) {
        match self {
            Self::None => *self = Self::One(slot),
            Self::One(first) => *self = Self::Several(vec![*first, slot]),
            Self::Several(slots) => slots.push(slot),
        }
    }

    /// Takes out the slot at a place and puts the last one there.
    pub(super) fn swap_remove(&mut self, place: usize) {
        self.change(|slots| {
            slots.swap_remove(place);
        });
    }

    /// Takes out a slot, mostly one of the first; the others stay in their order.
    pub(super) fn remove(&mut self, slot: u32) {
        self.change(|slots| {
            if let Some(place) = slots.iter().position(|known| *known == slot) {
                slots.remove(place);
            }
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u32>)) {
        match self {
            Self::None | Self::One(_) => *self = Self::None,
            Self::Several(slots) => {
                change(slots);
                if slots.is_empty() {
                    *self = Self::None;
                }
            }
        }
    }

    /// Memory beside its own, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Several(slots) => slots.capacity() * size_of::<u32>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_and_go() {
        let mut slots = Slots::default();
        slots.push(7);
        assert_eq!(slots.as_slice(), [7]);
        slots.swap_remove(0);
        assert!(slots.is_empty());
        [1, 2, 3, 4].into_iter().for_each(|slot| slots.push(slot));
        slots.swap_remove(0);
        assert_eq!(slots.as_slice(), [4, 2, 3]);
        slots.remove(4);
        assert_eq!(slots.as_slice(), [2, 3]);
        slots.remove(3);
        slots.remove(2);
        assert!(matches!(slots, Slots::None));
    }
}
