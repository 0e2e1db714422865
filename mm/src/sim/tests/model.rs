//! Random programs, one call at a time on any processor, against a plain model: a map from pages to
//! what they are and hold. Memory is short, so calls fail, and then nothing may have changed.

use std::collections::BTreeMap;

use super::*;
use crate::error::{FaultError, MapError};
use crate::request::{Access, MapRequest, Prot};
use crate::thp::HugeAdvice;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Page {
    Guard,
    Memory { prot: Prot, value: u64 },
}

struct Program {
    sim: Sim,
    random: Random,
    cpus: usize,
    pages: BTreeMap<u64, Page>,
    /// Ranges that were mapped and not unmapped as a whole.
    ranges: Vec<VirtRange>,
    /// What was not granted for want of memory.
    refused: usize,
}

const PROTS: [Prot; 4] = [Prot::READ_WRITE, Prot::READ_WRITE, Prot::READ, Prot::NONE];

impl Program {
    fn new(config: SimConfig) -> Self {
        let sim = Sim::new(config);
        Self {
            random: sim.random(),
            sim,
            cpus: config.cpus,
            pages: BTreeMap::new(),
            ranges: Vec::new(),
            refused: 0,
        }
    }

    fn key(address: VirtAddr) -> u64 {
        address.0 / PAGE as u64
    }

    fn keys(range: VirtRange) -> core::ops::Range<u64> {
        Self::key(range.start)..Self::key(range.end())
    }

    fn cpu(&self) -> usize {
        self.random.below(self.cpus)
    }

    fn prot(&self) -> Prot {
        PROTS[self.random.below(PROTS.len())]
    }

    /// A part of a mapping, or of what a mapping once was.
    fn any_part(&self) -> Option<VirtRange> {
        let count = self.ranges.len();
        let range = *self.ranges.get(self.random.below(count.max(1)))?;
        let pages = range.bytes / PAGE;
        let first = self.random.below(pages);
        let most = pages - first;
        Some(match self.random.below(4) {
            0 => range,
            1 => part(range, first, 1 + self.random.below(most.min(4))),
            _ => part(range, first, 1 + self.random.below(most)),
        })
    }

    fn map(&mut self) {
        let pages = match self.random.below(4) {
            0 => 1 + self.random.below(8),
            1 => 512 * (1 + self.random.below(3)),
            _ => 1 + self.random.below(1200),
        };
        let request = MapRequest {
            align_bytes: PAGE << self.random.below(11),
            prot: self.prot(),
            huge: [HugeAdvice::Default, HugeAdvice::Never][self.random.below(2)],
            guard_bytes: PAGE * self.random.below(4).saturating_sub(1),
            ..MapRequest::new(pages * PAGE - self.random.below(PAGE))
        };
        let range = match self.sim.on(self.cpu(), |cpu| cpu.mm().map(request)) {
            Ok(range) => range,
            Err(error) => {
                assert_eq!(error, MapError::OutOfMemory);
                self.refused += 1;
                return;
            }
        };
        assert_eq!(range.bytes, pages * PAGE);
        assert!(range.start.0.is_multiple_of(request.align_bytes as u64));
        let guard = Self::key(range.start) - (request.guard_bytes / PAGE) as u64;
        for key in guard..Self::key(range.end()) {
            let page = if key < Self::key(range.start) {
                Page::Guard
            } else {
                let prot = request.prot;
                Page::Memory { prot, value: 0 }
            };
            assert_eq!(self.pages.insert(key, page), None, "handed out twice");
        }
        self.ranges.push(range);
    }

    fn unmap(&mut self) {
        let Some(range) = self.any_part() else { return };
        match self.sim.on(self.cpu(), |cpu| cpu.mm().unmap(range)) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, MapError::OutOfMemory);
                self.refused += 1;
                return;
            }
        }
        for cpu in 0..self.cpus {
            assert_eq!(self.sim.cached(cpu, range), 0, "still in a TLB");
        }
        for key in Self::keys(range) {
            self.pages.remove(&key);
        }
        let mut below = Self::key(range.start) - 1;
        while self.pages.get(&below) == Some(&Page::Guard) {
            self.pages.remove(&below);
            below -= 1;
        }
        self.ranges.retain(|&mapped| mapped != range);
    }

    fn protect(&mut self) {
        let Some(range) = self.any_part() else { return };
        let prot = self.prot();
        match self.sim.on(self.cpu(), |cpu| cpu.mm().protect(range, prot)) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, MapError::OutOfMemory);
                self.refused += 1;
                return;
            }
        }
        for (_, page) in self.pages.range_mut(Self::keys(range)) {
            if let Page::Memory { prot: old, .. } = page {
                *old = prot;
            }
        }
    }

    fn touch(&mut self) {
        let Some(range) = self.any_part() else { return };
        // Sometimes the guard, or what lies behind.
        let stray = self.random.one_in(16);
        let address = if stray {
            let beside = [VirtAddr(range.start.0 - 1), range.end()];
            beside[self.random.below(2)]
        } else {
            range.start
        };
        let key = Self::key(address);
        let value = 1 + self.random.next() / 2;
        let access = [Access::Read, Access::Write, Access::Write][self.random.below(3)];
        let got = self.sim.on(self.cpu(), |cpu| match access {
            Access::Write => cpu.store(address, value),
            _ => cpu.load(address),
        });
        if got == Err(FaultError::OutOfMemory) {
            self.refused += 1;
            return;
        }
        let page = self.pages.get_mut(&key);
        let expected = match page {
            None => Err(FaultError::Unmapped),
            Some(Page::Guard) => Err(FaultError::Guard),
            Some(Page::Memory { prot, .. }) if !prot.allows(access) => Err(FaultError::Protection),
            Some(Page::Memory { value: old, .. }) => {
                let was = *old;
                if access == Access::Write {
                    *old = value;
                }
                Ok(was)
            }
        };
        assert_eq!(got, expected, "{access:?} at {address:?}");
    }

    fn populate(&mut self) {
        let Some(range) = self.any_part() else { return };
        let range = VirtRange::new(range.start, range.bytes.min(200 * PAGE));
        let result = self.sim.on(self.cpu(), |cpu| cpu.mm().populate(range));
        let readable = Self::keys(range).all(
            |key| matches!(self.pages.get(&key), Some(Page::Memory { prot, .. }) if prot.read),
        );
        match result {
            Ok(()) => assert!(readable),
            Err(FaultError::OutOfMemory) => self.refused += 1,
            Err(_) => assert!(!readable),
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0 if self.ranges.len() < 12 => self.map(),
            0 | 1 => self.unmap(),
            2 | 3 => self.protect(),
            4 => self.populate(),
            _ => self.touch(),
        }
        check(&self.sim);
    }

    fn finish(mut self) -> usize {
        // Every value is where it should be.
        let pages: Vec<(u64, Page)> = self.pages.iter().map(|(&key, &page)| (key, page)).collect();
        for (key, page) in pages {
            if let Page::Memory { prot, value } = page
                && prot.read
            {
                let address = VirtAddr(key * PAGE as u64);
                let got = self.sim.on(self.cpu(), |cpu| cpu.load(address));
                assert!(got == Ok(value) || got == Err(FaultError::OutOfMemory));
            }
        }
        for range in core::mem::take(&mut self.ranges) {
            self.sim
                .on(self.cpu(), |cpu| cpu.mm().unmap(range))
                .unwrap();
        }
        check_empty(&self.sim);
        self.refused
    }
}

/// Runs programs; returns how often memory ran out.
fn run(programs: u64, steps: usize, node_bytes: usize, thp: ThpMode) -> usize {
    let mut refused = 0;
    for seed in 0..programs {
        let cpus = [2, 3, 4, 8][seed as usize % 4];
        let nodes = [1, 2, 2, 4][seed as usize % 4];
        let config = SimConfig {
            seed: seed.wrapping_mul(0x0123_4567_89ab_cdef) + 7,
            ..SimConfig::new(cpus, nodes, node_bytes, thp)
        };
        let mut program = Program::new(config);
        for _ in 0..steps {
            program.step();
        }
        refused += program.finish();
    }
    refused
}

#[test]
fn small_pages_behave_like_the_model() {
    assert_eq!(run(12, 1000, 128 << 20, ThpMode::Never), 0);
}

#[test]
fn huge_pages_behave_like_the_model() {
    assert_eq!(run(12, 1000, 128 << 20, ThpMode::Always), 0);
}

#[test]
fn calls_without_memory_change_nothing() {
    for thp in [ThpMode::Never, ThpMode::Always] {
        assert!(run(8, 800, 1 << 20, thp) > 100);
        assert!(run(8, 800, 2 << 20, thp) > 20);
    }
}
