//! A simulated processor: its caches of translations, its walker, its accesses.

use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::{DATA, ROOT, SimMachine};
use crate::error::{FaultError, MapError};
use crate::ids::{CpuId, FrameId, HUGE_BYTES, PAGE_BYTES, PageSize, PhysAddr, VirtAddr, VirtRange};
use crate::manager::MemoryManager;
use crate::request::{Access, MapRequest, Prot};

/// Translations that a TLB holds at most.
const TLB_ENTRIES: usize = 48;

/// A translation in a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Translation {
    pub(super) page: VirtAddr,
    pub(super) size: PageSize,
    pub(super) frame: FrameId,
    pub(super) prot: Prot,
}

#[derive(Default)]
struct Cached {
    base: BTreeMap<u64, Translation>,
    huge: BTreeMap<u64, Translation>,
    /// The table under each entry that a walk went through, by level and number.
    tables: BTreeMap<(usize, u64), FrameId>,
    /// The memory manager's last walk on this processor: its number and where it was.
    walk: u64,
    walked: Vec<FrameId>,
}

/// What one processor remembers of the page tables.
#[derive(Default)]
pub(super) struct Caches(Mutex<Cached>);

impl Caches {
    fn get(&self) -> MutexGuard<'_, Cached> {
        // A failed check on another thread leaves nothing half done here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, address: VirtAddr) -> Option<Translation> {
        let cached = self.get();
        let base = cached.base.get(&address.align_down(PAGE_BYTES).0);
        base.or_else(|| cached.huge.get(&address.align_down(HUGE_BYTES).0))
            .copied()
    }

    fn insert(&self, translation: Translation, victim: usize) {
        let mut cached = self.get();
        let map = match translation.size {
            PageSize::Base => &mut cached.base,
            PageSize::Huge | PageSize::Giant => &mut cached.huge,
        };
        if map.len() == TLB_ENTRIES {
            let key = map.keys().copied().nth(victim % TLB_ENTRIES);
            key.and_then(|key| map.remove(&key));
        }
        map.insert(translation.page.0, translation);
    }

    pub(super) fn flush_page(&self, page: VirtAddr, size: PageSize) {
        let mut cached = self.get();
        let end = page.0 + size.bytes() as u64;
        cached.base.retain(|&at, _| at < page.0 || at >= end);
        cached.huge.remove(&page.align_down(HUGE_BYTES).0);
        cached.tables.clear();
    }

    pub(super) fn flush_all(&self) {
        let mut cached = self.get();
        cached.base.clear();
        cached.huge.clear();
        cached.tables.clear();
    }

    /// Notes that the processor uses a table in its walk of this number (even: it is in none).
    pub(super) fn note_walk(&self, walk: u64, frame: FrameId) {
        let mut cached = self.get();
        if cached.walk != walk {
            cached.walk = walk;
            cached.walked.clear();
        }
        if !walk.is_multiple_of(2) && !cached.walked.contains(&frame) {
            cached.walked.push(frame);
        }
    }

    /// Whether the walk of this number goes on and has used one of the frames.
    pub(super) fn is_walking(&self, walk: u64, first: FrameId, frames: usize) -> bool {
        let cached = self.get();
        let mut walked = cached.walked.iter();
        cached.walk == walk && walked.any(|&frame| first <= frame && frame < first.add(frames))
    }

    pub(super) fn translations(&self) -> Vec<Translation> {
        let cached = self.get();
        let both = cached.base.values().chain(cached.huge.values());
        both.copied().collect()
    }

    /// What leads to one of `frames` frames from `first`.
    pub(super) fn leads_to(&self, first: FrameId, frames: usize) -> Option<String> {
        let end = first.add(frames);
        let cached = self.get();
        let mut all = cached.base.values().chain(cached.huge.values());
        let translation = all.find(|cached| {
            cached.frame < end && first < cached.frame.add(cached.size.order().frames())
        });
        let mut tables = cached.tables.values();
        match translation {
            Some(translation) => Some(format!("{translation:?}")),
            None => tables
                .find(|&&table| first <= table && table < end)
                .map(|table| format!("the page-table page {table:?}")),
        }
    }
}

impl SimMachine {
    /// Translates as the processor does, through its caches, and remembers the result.
    fn walk(&self, cpu: CpuId, address: VirtAddr, access: Access) -> Option<Translation> {
        let caches = &self.caches[cpu.index()];
        let number = |level: usize| address.0 >> (3 + 9 * level);
        let (mut level, mut table) = (4, ROOT);
        for lower in 1..4 {
            // `lower` is the level of the table that is remembered.
            if let Some(&frame) = caches.get().tables.get(&(lower, number(lower + 1))) {
                (level, table) = (lower, frame);
                break;
            }
        }
        loop {
            self.scheduler.switch();
            let word = self.table_word(table, number(level) as usize % 512);
            let entry = word.load(Ordering::SeqCst);
            if entry & 1 == 0 {
                return None;
            }
            let frame = FrameId::containing(PhysAddr(entry & 0x000f_ffff_ffff_f000));
            let size = match level {
                1 => PageSize::Base,
                2 if entry & 0x80 != 0 => PageSize::Huge,
                _ => {
                    caches
                        .get()
                        .tables
                        .insert((level - 1, number(level)), frame);
                    (level, table) = (level - 1, frame);
                    continue;
                }
            };
            let prot = Prot {
                read: true,
                write: entry & 2 != 0,
                exec: entry >> 63 == 0,
            };
            if !prot.allows(access) {
                return None;
            }
            // Accessed, and dirty if so. The entry may have changed: then everything anew.
            let noted = entry | if access == Access::Write { 0x60 } else { 0x20 };
            self.scheduler.switch();
            let swap = word.compare_exchange(entry, noted, Ordering::SeqCst, Ordering::SeqCst);
            if swap.is_err() {
                continue;
            }
            let translation = Translation {
                page: address.align_down(size.bytes()),
                size,
                frame,
                prot,
            };
            self.scheduler.switch();
            caches.insert(translation, self.scheduler.random() as usize);
            return Some(translation);
        }
    }
}

/// A simulated processor, as its program sees it.
pub struct SimCpu {
    mm: Arc<MemoryManager<SimMachine>>,
    id: CpuId,
}

impl SimCpu {
    pub(super) fn new(mm: Arc<MemoryManager<SimMachine>>, id: CpuId) -> Self {
        Self { mm, id }
    }

    /// The processor.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// The memory manager.
    pub fn mm(&self) -> &MemoryManager<SimMachine> {
        &self.mm
    }

    /// Maps readable and writable memory.
    pub fn map(&self, bytes: usize) -> Result<VirtRange, MapError> {
        self.mm.map(MapRequest::new(bytes))
    }

    /// The word of the page at `address`.
    pub fn load(&self, address: VirtAddr) -> Result<u64, FaultError> {
        self.access(address, Access::Read, |data| data)
    }

    /// Writes the word of the page at `address`; returns what it was.
    pub fn store(&self, address: VirtAddr, value: u64) -> Result<u64, FaultError> {
        self.access(address, Access::Write, |_| value)
    }

    /// Executes something in the page at `address`.
    pub fn execute(&self, address: VirtAddr) -> Result<(), FaultError> {
        self.access(address, Access::Execute, |data| data).map(drop)
    }

    /// Waits for others for a moment.
    pub fn pause(&self) {
        self.mm.machine().scheduler.relax();
    }

    fn access(
        &self,
        address: VirtAddr,
        access: Access,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, FaultError> {
        let machine = self.mm.machine();
        loop {
            // Interrupts come between instructions, never inside one.
            machine.scheduler.step();
            let cached = machine.caches[self.id.index()].find(address);
            let usable = cached.filter(|cached| cached.prot.allows(access));
            let found = usable.or_else(|| machine.walk(self.id, address, access));
            let Some(found) = found else {
                // A fault makes the processor forget the translation that it could not use.
                let page = address.align_down(PAGE_BYTES);
                machine.caches[self.id.index()].flush_page(page, PageSize::Base);
                self.mm.fault(address, access)?;
                continue;
            };
            machine.scheduler.switch();
            let offset = (address.0 - found.page.0) as usize / PAGE_BYTES;
            let frame = &machine.frames[found.frame.add(offset).index()];
            if frame.role.load(Ordering::SeqCst) != DATA {
                machine
                    .scheduler
                    .fail(format!("{found:?} leads to a frame that is no page"));
            }
            let data = frame.data.load(Ordering::SeqCst);
            if access == Access::Write {
                return Ok(frame.data.swap(change(data), Ordering::SeqCst));
            }
            return Ok(data);
        }
    }
}
