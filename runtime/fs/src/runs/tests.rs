extern crate std;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use super::*;

const PAGE: usize = 4096;
const START: u64 = 0x10_0000;

/// Memory by page: where it lies, and whether it can be written.
#[derive(Default)]
struct Memory {
    pages: RefCell<BTreeMap<u64, (u64, bool)>>,
    /// Pages that `populate` was asked for, in order.
    populated: RefCell<Vec<u64>>,
}

impl Memory {
    /// Maps page `page` (from `START`) to frame `frame`.
    fn with(self, page: usize, frame: u64, writable: bool) -> Self {
        let at = START / PAGE as u64 + page as u64;
        self.pages.borrow_mut().insert(at, (frame, writable));
        self
    }

    fn translate(&self, address: u64) -> Option<Translation> {
        let page = PAGE as u64;
        let (frame, writable) = *self.pages.borrow().get(&(address / page))?;
        Some(Translation {
            physical: frame * page + address % page,
            bytes: (page - address % page) as usize,
            readable: true,
            writable,
        })
    }

    /// Maps what is missing to frames that do not follow each other, up to frame `limit`.
    fn populate(&self, start: u64, bytes: usize, limit: u64) -> Result<(), Errno> {
        let page = PAGE as u64;
        for number in start / page..(start + bytes as u64).div_ceil(page) {
            let mut pages = self.pages.borrow_mut();
            if pages.contains_key(&number) {
                continue;
            }
            let frame = 1000 + 2 * pages.len() as u64;
            if frame > limit {
                return Err(Errno::NOMEM);
            }
            pages.insert(number, (frame, true));
            self.populated.borrow_mut().push(number - START / page);
        }
        Ok(())
    }

    fn run(&self, offset: usize, bytes: usize, direction: Direction) -> Result<Run, NoRun> {
        first_run(START + offset as u64, bytes, direction, |address| {
            self.translate(address)
        })
    }

    /// A transfer with a host that has `available` bytes; returns its result and the pieces.
    fn transfer(
        &self,
        offset: usize,
        bytes: usize,
        available: usize,
        limit: u64,
    ) -> (Result<usize, Errno>, Vec<usize>) {
        let (available, pieces) = (Cell::new(available), RefCell::new(Vec::new()));
        let result = transfer(
            START + offset as u64,
            bytes,
            |at, left| match first_run(at, left, Direction::ToMemory, |at| self.translate(at)) {
                Ok(run) => {
                    pieces.borrow_mut().push(run.bytes);
                    let done = run.bytes.min(available.get());
                    available.set(available.get() - done);
                    Attempt::Tried {
                        tried: run.bytes,
                        done: Ok(done),
                    }
                }
                Err(no_run) => Attempt::NoRun(no_run),
            },
            |at, bytes| self.populate(at, bytes, limit),
        );
        (result, pieces.into_inner())
    }
}

#[test]
fn frames_that_follow_each_other_are_one_run() {
    let memory = Memory::default()
        .with(0, 7, true)
        .with(1, 8, true)
        .with(2, 9, true)
        .with(3, 20, true);
    let run = memory.run(100, 4 * PAGE, Direction::ToMemory);
    let physical = 7 * PAGE as u64 + 100;
    let expected = Run {
        physical,
        bytes: 3 * PAGE - 100,
    };
    assert_eq!(run, Ok(expected));
    let short = memory.run(100, 50, Direction::ToMemory);
    let expected = Run {
        physical,
        bytes: 50,
    };
    assert_eq!(short, Ok(expected), "no longer than the buffer");
}

#[test]
fn pages_of_any_size_count_as_they_are() {
    // One huge page: the translation itself says how far it goes.
    let huge = |address: u64| {
        Some(Translation {
            physical: address + 0x4000_0000,
            bytes: (2 << 20) - (address % (2 << 20)) as usize,
            readable: true,
            writable: true,
        })
    };
    let run = first_run(4096, 1 << 30, Direction::ToMemory, huge).unwrap();
    assert_eq!((run.physical, run.bytes), (0x4000_1000, MOST_BYTES));
}

#[test]
fn a_run_ends_at_a_hole_and_at_the_most() {
    let memory = Memory::default().with(0, 7, true).with(2, 9, true);
    let run = memory.run(0, 3 * PAGE, Direction::ToMemory).unwrap();
    assert_eq!(run.bytes, PAGE);
    let missing = memory.run(PAGE, PAGE, Direction::ToMemory);
    assert_eq!(missing, Err(NoRun::Missing));
    let large = (0..600).fold(Memory::default(), |memory, page| {
        memory.with(page, page as u64, true)
    });
    let run = large.run(1, 600 * PAGE - 1, Direction::ToMemory).unwrap();
    assert_eq!(run.bytes, MOST_BYTES);
    let end = first_run(u64::MAX, 2, Direction::ToMemory, |_| None);
    assert_eq!(end, Err(NoRun::Missing), "addresses do not wrap");
}

#[test]
fn protection_is_looked_at_page_by_page() {
    let memory = Memory::default()
        .with(0, 7, true)
        .with(1, 8, false)
        .with(2, 9, true);
    let written = memory.run(0, 3 * PAGE, Direction::ToMemory).unwrap();
    assert_eq!(written.bytes, PAGE, "the host writes no read-only page");
    let refused = memory.run(PAGE + 5, 10, Direction::ToMemory);
    assert_eq!(refused, Err(NoRun::Forbidden));
    let read = memory.run(0, 3 * PAGE, Direction::FromMemory).unwrap();
    assert_eq!(read.bytes, 3 * PAGE);
    let closed = |_| {
        Some(Translation {
            physical: 0,
            bytes: PAGE,
            readable: false,
            writable: false,
        })
    };
    let refused = first_run(START, 1, Direction::FromMemory, closed);
    assert_eq!(refused, Err(NoRun::Forbidden));
}

#[test]
fn a_transfer_populates_what_it_reaches() {
    let memory = Memory::default().with(0, 7, true);
    let (result, pieces) = memory.transfer(10, 3 * PAGE, usize::MAX, u64::MAX);
    assert_eq!(result, Ok(3 * PAGE));
    assert_eq!(pieces, [PAGE - 10, PAGE, PAGE, 10]);
    let untouched = Memory::default().with(0, 7, true);
    let (result, pieces) = untouched.transfer(10, 3 * PAGE, 5, u64::MAX);
    assert_eq!((result, pieces), (Ok(5), vec![PAGE - 10]));
    assert!(untouched.populated.borrow().is_empty(), "a short transfer");
    let window = Memory::default();
    let (result, _) = window.transfer(0, 3 * MOST_BYTES, 10, u64::MAX);
    assert_eq!(result, Ok(10));
    assert_eq!(window.populated.borrow().len(), MOST_BYTES / PAGE);
}

#[test]
fn what_cannot_be_mapped_ends_a_transfer() {
    let nothing = Memory::default();
    let (result, pieces) = nothing.transfer(0, PAGE, usize::MAX, 0);
    assert_eq!((result, pieces), (Err(Errno::NOMEM), vec![]));
    let some = Memory::default();
    let (result, _) = some.transfer(0, 9 * PAGE, usize::MAX, 1004);
    assert_eq!(result, Ok(3 * PAGE), "as far as there are frames");
    let constant = Memory::default().with(0, 7, false);
    let (result, _) = constant.transfer(0, 1, usize::MAX, u64::MAX);
    assert_eq!(result, Err(Errno::FAULT));
    let (result, _) = Memory::default()
        .with(0, 7, true)
        .with(1, 8, false)
        .transfer(1, 2 * PAGE, usize::MAX, u64::MAX);
    assert_eq!(result, Ok(PAGE - 1), "what went over counts");
}

#[test]
fn a_page_that_vanishes_is_mapped_again() {
    let mapped = Cell::new(false);
    let vanishes = Cell::new(3);
    let populated = Cell::new(0);
    let result = transfer(
        START,
        10,
        |_, left| {
            if vanishes.get() > 0 && mapped.get() {
                vanishes.set(vanishes.get() - 1);
                mapped.set(false);
            }
            if !mapped.get() {
                return Attempt::NoRun(NoRun::Missing);
            }
            Attempt::Tried {
                tried: left,
                done: Ok(left),
            }
        },
        |_, _| {
            populated.set(populated.get() + 1);
            mapped.set(true);
            Ok(())
        },
    );
    assert_eq!((result, populated.get()), (Ok(10), 4));
}

#[test]
fn an_error_of_the_host_counts_where_nothing_went_before() {
    let with = |first: Result<usize, Errno>| {
        let calls = Cell::new(0);
        let attempt = |_, left: usize| {
            calls.set(calls.get() + 1);
            let done = if calls.get() == 1 {
                first
            } else {
                Err(Errno::IO)
            };
            Attempt::Tried {
                tried: left.min(4),
                done,
            }
        };
        transfer(START, 10, attempt, |_, _| Ok(()))
    };
    assert_eq!(with(Err(Errno::IO)), Err(Errno::IO));
    assert_eq!(with(Ok(4)), Ok(4));
    assert_eq!(with(Ok(3)), Ok(3), "a short piece is the last");
    assert_eq!(with(Ok(0)), Ok(0), "the end of the file");
    assert_eq!(
        transfer(START, 0, |_, _| unreachable!(), |_, _| Ok(())),
        Ok(0)
    );
}
