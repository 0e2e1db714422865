//! The words of page-table pages, in the format of x86-64.
//!
//! A word is one of three things, told apart by two bits:
//!
//! | `PRESENT` | `MAPPED` | |
//! |---|---|---|
//! | 0 | 0 | **empty**: the state in the metadata says what the pages are |
//! | 1 | 0 | **table**: a page-table page of the next lower level |
//! | – | 1 | **leaf**: a page and the frame it owns; not present if no access is allowed |
//!
//! `MAPPED` and `LOCKED` are bits that the processor ignores. `LOCKED` is the lock of an entry that
//! is *not* a table (the lock of a lowest-level table is in its metadata). The processor sets
//! `ACCESSED` and `DIRTY` at any time, so whoever changes a word uses an atomic operation.

use crate::ids::{FrameId, PageSize, PhysAddr};
use crate::request::Prot;

const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const MAPPED: u64 = 1 << 9;
const LOCKED: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 63;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// One word of a page-table page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(pub(crate) u64);

impl Entry {
    /// Nothing, unlocked.
    pub(crate) const EMPTY: Self = Self(0);
    /// The lock bit alone.
    pub(crate) const LOCK: u64 = LOCKED;

    /// A reference to a page-table page.
    pub(crate) const fn table(frame: FrameId) -> Self {
        Self(frame.address().0 | PRESENT | WRITE)
    }

    /// A page of `size` at `frame`.
    pub(crate) const fn leaf(frame: FrameId, size: PageSize, prot: Prot) -> Self {
        let large = match size {
            PageSize::Base => 0,
            PageSize::Huge | PageSize::Giant => LARGE,
        };
        Self(frame.address().0 | MAPPED | large).with_prot(prot)
    }

    /// The same leaf with another protection.
    pub(crate) const fn with_prot(self, prot: Prot) -> Self {
        let prot = prot.effective();
        let mut word = self.0 & !(PRESENT | WRITE | NO_EXECUTE);
        if prot.read {
            word |= PRESENT;
        }
        if prot.write {
            word |= WRITE;
        }
        if !prot.exec {
            word |= NO_EXECUTE;
        }
        Self(word)
    }

    /// The leaf of one base page, `index` pages into this huge leaf. It inherits what the processor
    /// noted about the huge page.
    pub(crate) const fn base_part(self, index: usize) -> Self {
        let part = Self::leaf(self.frame().add(index), PageSize::Base, self.prot());
        Self(part.0 | (self.0 & (ACCESSED | DIRTY)))
    }

    pub(crate) const fn is_table(self) -> bool {
        self.0 & (PRESENT | MAPPED) == PRESENT
    }

    pub(crate) const fn is_leaf(self) -> bool {
        self.0 & MAPPED != 0
    }

    pub(crate) const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    pub(crate) const fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }

    pub(crate) const fn unlocked(self) -> Self {
        Self(self.0 & !LOCKED)
    }

    /// The frame of a table or of a leaf.
    pub(crate) const fn frame(self) -> FrameId {
        FrameId::containing(PhysAddr(self.0 & FRAME))
    }

    /// What a leaf allows.
    pub(crate) const fn prot(self) -> Prot {
        let present = self.0 & PRESENT != 0;
        Prot {
            read: present,
            write: present && self.0 & WRITE != 0,
            exec: present && self.0 & NO_EXECUTE == 0,
        }
    }

    /// Whether a translation of this leaf that a TLB holds would allow more than `newer` does.
    pub(crate) const fn loses_rights(self, newer: Self) -> bool {
        let (old, new) = (self.prot(), newer.prot());
        (old.read && !new.read) || (old.write && !new.write) || (old.exec && !new.exec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: FrameId = FrameId::new(0x12_3400);

    #[test]
    fn kinds_are_told_apart() {
        let table = Entry::table(FRAME);
        let leaf = Entry::leaf(FRAME, PageSize::Huge, Prot::READ_WRITE);
        let hidden = Entry::leaf(FRAME, PageSize::Base, Prot::NONE);
        assert!(table.is_table() && !table.is_leaf());
        assert!(leaf.is_leaf() && !leaf.is_table());
        assert!(hidden.is_leaf() && !hidden.is_table() && hidden.0 & PRESENT == 0);
        assert!(!Entry::EMPTY.is_table() && !Entry::EMPTY.is_leaf());
        for entry in [table, leaf, hidden] {
            assert_eq!(entry.frame(), FRAME);
            assert_eq!(entry.locked().unlocked(), entry);
            assert_eq!(entry.locked().is_table(), entry.is_table());
        }
    }

    #[test]
    fn protections_go_round() {
        for bits in 0..8 {
            let prot = Prot {
                read: bits & 1 != 0,
                write: bits & 2 != 0,
                exec: bits & 4 != 0,
            };
            let leaf = Entry::leaf(FRAME, PageSize::Base, prot);
            assert_eq!(leaf.prot(), prot.effective());
            assert_eq!(leaf.with_prot(Prot::NONE).with_prot(prot), leaf);
        }
    }

    #[test]
    fn only_lost_rights_need_a_flush() {
        let leaf = |prot| Entry::leaf(FRAME, PageSize::Base, prot);
        assert!(leaf(Prot::READ_WRITE).loses_rights(leaf(Prot::READ)));
        assert!(leaf(Prot::READ).loses_rights(leaf(Prot::NONE)));
        assert!(!leaf(Prot::NONE).loses_rights(leaf(Prot::READ_WRITE)));
        assert!(!leaf(Prot::READ).loses_rights(leaf(Prot::READ_WRITE)));
    }

    #[test]
    fn parts_of_a_huge_leaf_keep_what_the_processor_noted() {
        let huge = Entry(Entry::leaf(FRAME, PageSize::Huge, Prot::READ).0 | ACCESSED);
        let part = huge.base_part(3);
        assert_eq!(part.frame(), FRAME.add(3));
        assert_eq!(part.prot(), Prot::READ);
        assert_eq!(part.0 & (ACCESSED | DIRTY | LARGE), ACCESSED);
    }
}
