//! What a virtual page is, apart from what it maps to.

use crate::request::Prot;
use crate::thp::HugeAdvice;

const KIND: u32 = 0b11;
const RESERVED: u32 = 1;
const GUARD: u32 = 2;
const READ: u32 = 1 << 2;
const WRITE: u32 = 1 << 3;
const EXEC: u32 = 1 << 4;
const NEVER_HUGE: u32 = 1 << 5;

/// The state of a page, or of all pages under an entry that refers to no table. 0 is unreserved, so
/// cleared metadata describes an empty address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(pub(crate) u32);

impl State {
    /// Nothing is here.
    pub(crate) const UNRESERVED: Self = Self(0);
    /// A guard below a mapping.
    pub(crate) const GUARD: Self = Self(GUARD);

    /// Part of a mapping.
    pub(crate) const fn reserved(prot: Prot, huge: HugeAdvice) -> Self {
        let advice = match huge {
            HugeAdvice::Default => 0,
            HugeAdvice::Never => NEVER_HUGE,
        };
        Self(RESERVED | advice).with_prot(prot)
    }

    /// The same with another protection.
    pub(crate) const fn with_prot(self, prot: Prot) -> Self {
        let mut word = self.0 & !(READ | WRITE | EXEC);
        if prot.effective().read {
            word |= READ;
        }
        if prot.write {
            word |= WRITE;
        }
        if prot.exec {
            word |= EXEC;
        }
        Self(word)
    }

    pub(crate) const fn is_unreserved(self) -> bool {
        self.0 & KIND == 0
    }

    pub(crate) const fn is_reserved(self) -> bool {
        self.0 & KIND == RESERVED
    }

    pub(crate) const fn is_guard(self) -> bool {
        self.0 & KIND == GUARD
    }

    pub(crate) const fn prot(self) -> Prot {
        Prot {
            read: self.0 & READ != 0,
            write: self.0 & WRITE != 0,
            exec: self.0 & EXEC != 0,
        }
    }

    pub(crate) const fn huge(self) -> HugeAdvice {
        if self.0 & NEVER_HUGE == 0 {
            HugeAdvice::Default
        } else {
            HugeAdvice::Never
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_what_they_are_given() {
        for prot in [Prot::NONE, Prot::READ, Prot::READ_WRITE] {
            for huge in [HugeAdvice::Default, HugeAdvice::Never] {
                let state = State::reserved(prot, huge);
                assert!(state.is_reserved() && !state.is_guard() && !state.is_unreserved());
                assert_eq!((state.prot(), state.huge()), (prot, huge));
                let changed = state.with_prot(Prot::READ);
                assert_eq!((changed.prot(), changed.huge()), (Prot::READ, huge));
            }
        }
        assert!(State::UNRESERVED.is_unreserved());
        assert!(State::GUARD.is_guard() && !State::GUARD.is_unreserved());
    }
}
