//! The facade: one [`MemoryManager`] owns the frames, the address space and the counters.
//!
//! **Who may call.** Every call runs with preemption off on the processor that
//! [`Machine::this_cpu`] names; interrupts may be on. The memory manager itself must never fault:
//! its code, its data and the stack it runs on are mapped while a call runs.
//!
//! **What waits.** [`MemoryManager::unmap`] and a [`MemoryManager::protect`] that takes rights away
//! return after every processor has flushed; they hold no lock while they wait, and serve the
//! shootdowns of others meanwhile. [`MemoryManager::serve_shootdowns`] never waits and takes no lock.
//! No call allocates from the heap once [`MemoryManager::new`] has returned, so a heap may sit on
//! top of [`MemoryManager::map`].
//!
//! **Errors.** A call that fails has changed nothing that its caller can see, with one exception
//! named at [`MemoryManager::unmap`] and [`MemoryManager::protect`].

#![forbid(unsafe_code)]

use crate::error::{FaultError, InitError, MapError};
use crate::frame::{FrameAllocator, FrameKind, RamRange, Reach};
use crate::ids::{CpuId, FrameId, NodeId, Order, PAGE_BYTES, PageSize, VirtAddr, VirtRange};
use crate::machine::Machine;
use crate::numa::Topology;
use crate::request::{
    ARENA_ALIGN_BYTES, Access, Config, FaultOutcome, MIN_RAM_BYTES, MapRequest, Mapping, Prot,
};
use crate::space::{Placement, Space, State, Table, Walk};
use crate::stats::{Counter, Snapshot, Stats};
use crate::tlb::Tlb;

/// The addresses that the processor does not have.
const NOT_CANONICAL: core::ops::Range<u64> = 1 << 47..u64::MAX << 47;

/// The memory manager of one machine.
pub struct MemoryManager<M: Machine> {
    pub(crate) machine: M,
    pub(crate) frames: FrameAllocator,
    pub(crate) topology: Topology,
    pub(crate) stats: Stats,
    pub(crate) config: Config,
    pub(crate) space: Space,
    pub(crate) tlb: Tlb,
}

impl<M: Machine> MemoryManager<M> {
    /// A memory manager for all of `ram`.
    pub fn new(
        machine: M,
        topology: Topology,
        ram: &[RamRange],
        config: Config,
    ) -> Result<Self, InitError> {
        let Config { arena, root, .. } = config;
        let end = arena.start.0.checked_add(arena.bytes as u64);
        if arena.start.0 == 0
            || arena.bytes == 0
            || !arena.start.0.is_multiple_of(ARENA_ALIGN_BYTES as u64)
            || !arena.bytes.is_multiple_of(ARENA_ALIGN_BYTES)
            || end.is_none_or(|end| arena.start.0 < NOT_CANONICAL.end && end > NOT_CANONICAL.start)
        {
            return Err(InitError::Arena(arena));
        }
        if let Some(at) = Space::first_used(&machine, root, arena) {
            return Err(InitError::RootInUse(at));
        }
        let bytes = ram.iter().map(|range| range.bytes).sum();
        if bytes < MIN_RAM_BYTES as u64 {
            return Err(InitError::TooLittleMemory { bytes });
        }
        let cpus = machine.cpu_count();
        let mut frames = FrameAllocator::new(ram, &topology, cpus)?;
        if let Some(memory) = config.debug_frames {
            frames = frames.with_debug(Some(memory));
        }
        let stats = Stats::new(cpus, topology.node_count());
        Ok(Self {
            machine,
            frames,
            topology,
            stats,
            config,
            space: Space::new(root, arena, cpus),
            tlb: Tlb::new(cpus),
        })
    }

    /// Reserves addresses for a new mapping. Its pages are mapped by the faults of whoever touches
    /// them first.
    pub fn map(&self, request: MapRequest) -> Result<VirtRange, MapError> {
        let cpu = self.machine.this_cpu();
        self.count(cpu, Counter::Mmap, 1);
        let whole_pages = |bytes: usize| {
            bytes
                .checked_next_multiple_of(PAGE_BYTES)
                .filter(|&bytes| bytes <= self.config.arena.bytes)
                .ok_or(MapError::OutOfMemory)
        };
        if request.bytes == 0 || !request.align_bytes.is_power_of_two() {
            return Err(MapError::InvalidArgument);
        }
        let bytes = whole_pages(request.bytes)?;
        let placement = Placement {
            guard: whole_pages(request.guard_bytes)?,
            bytes,
            align: request
                .align_bytes
                .max(self.config.thp.alignment_for(request.huge, bytes)),
            state: State::reserved(request.prot, request.huge),
        };
        Ok(self.place(cpu, placement)?)
    }

    /// Takes away all mappings and reservations in `range`, any page-aligned part of the arena, and
    /// returns their frames. Huge pages on the borders are split. A guard directly below `range` goes
    /// with the page above it.
    ///
    /// Splitting may need a page-table page; if there is no frame for it, nothing is unmapped,
    /// unless other calls change the pages on the borders of the range at the same time.
    pub fn unmap(&self, range: VirtRange) -> Result<(), MapError> {
        let cpu = self.machine.this_cpu();
        self.count(cpu, Counter::Munmap, 1);
        let end = self.check(range)?;
        let start = Walk::enter(self).guard_start(range.start);
        let range = VirtRange::new(start, (end.0 - start.0) as usize);
        self.release(range)?;
        self.recycle(cpu, range);
        Ok(())
    }

    /// Changes what accesses `range`, any page-aligned part of the arena, allows. Guards in it and
    /// pages that are not reserved stay as they are. Failures are those of [`MemoryManager::unmap`].
    pub fn protect(&self, range: VirtRange, prot: Prot) -> Result<(), MapError> {
        self.count(self.machine.this_cpu(), Counter::Mprotect, 1);
        self.check(range)?;
        Ok(self.reprotect(range, prot)?)
    }

    /// The end of a range that a caller has given.
    fn check(&self, range: VirtRange) -> Result<VirtAddr, MapError> {
        let arena = self.config.arena;
        let page = PAGE_BYTES as u64;
        let end = range.start.0.checked_add(range.bytes as u64);
        match end {
            Some(end)
                if range.bytes > 0
                    && range.start.0.is_multiple_of(page)
                    && end.is_multiple_of(page)
                    && range.start >= arena.start
                    && end <= arena.end().0 =>
            {
                Ok(VirtAddr(end))
            }
            _ => Err(MapError::InvalidArgument),
        }
    }

    /// Resolves a page fault of this processor.
    pub fn fault(&self, address: VirtAddr, access: Access) -> Result<FaultOutcome, FaultError> {
        let cpu = self.machine.this_cpu();
        self.count(cpu, Counter::PgFault, 1);
        let outcome = self.resolve(address, access)?;
        if outcome.spurious {
            self.count(cpu, Counter::PgFaultSpurious, 1);
        }
        Ok(outcome)
    }

    /// Maps every page of `range` that is not mapped yet, as if this processor had read it. Stops at
    /// the first page that cannot be mapped.
    pub fn populate(&self, range: VirtRange) -> Result<(), FaultError> {
        let Some(end) = range.start.0.checked_add(range.bytes as u64) else {
            return Err(FaultError::Unmapped);
        };
        let mut at = range.start;
        while at.0 < end {
            let size = self.resolve(at, Access::Read)?.size.bytes();
            at = VirtAddr(at.align_down(size).0 + size as u64);
        }
        Ok(())
    }

    /// The page that is mapped at `address`. Takes no lock.
    pub fn lookup(&self, address: VirtAddr) -> Option<Mapping> {
        if !self.config.arena.contains(address) {
            return None;
        }
        let spot = Walk::enter(self).find(address);
        spot.entry.is_leaf().then(|| Mapping {
            frame: spot.entry.frame(),
            size: if spot.level == 1 {
                PageSize::Base
            } else {
                PageSize::Huge
            },
            prot: spot.entry.prot(),
        })
    }

    /// The node of the page that is mapped at `address`.
    pub fn page_home(&self, address: VirtAddr) -> Option<NodeId> {
        self.frames.node_of(self.lookup(address)?.frame)
    }

    /// Serves the shootdowns requested of this processor. The handler of the interrupt that
    /// [`Machine::send_shootdown`] raises calls it, in whatever context it interrupted: it takes no
    /// lock and never waits.
    pub fn serve_shootdowns(&self) {
        self.tlb.serve(self, self.machine.this_cpu(), true);
    }

    /// The same for whoever spins with interrupts off: an interrupt that is on its way stays
    /// accounted for.
    pub fn poll_shootdowns(&self) {
        self.tlb.serve(self, self.machine.this_cpu(), false);
    }

    /// Operations that have taken translations away and not yet flushed them everywhere.
    pub fn pending_flushes(&self) -> u64 {
        self.tlb.pending()
    }

    /// Frames that are mapped in the arena.
    pub fn mapped_frames(&self) -> u64 {
        self.space.mapped_frames()
    }

    /// Frames that serve as the arena's page tables and their metadata.
    pub fn page_table_frames(&self) -> u64 {
        self.space.table_frames()
    }

    /// The frame allocator. Frames that others take from it are theirs to account for.
    pub fn frames(&self) -> &FrameAllocator {
        &self.frames
    }

    /// Takes frames for `cpu`, which executes the caller, from `node` or else from the nearest one
    /// that has them.
    pub fn alloc_frames(
        &self,
        cpu: CpuId,
        node: NodeId,
        order: Order,
        kind: FrameKind,
        reach: Reach,
    ) -> Option<FrameId> {
        let fence_others = || self.tlb.fence_others(self, cpu);
        self.frames
            .alloc(cpu, node, order, kind, reach, &fence_others)
    }

    /// All counters, those of the frame allocator included, added up over all processors.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.stats.snapshot();
        self.frames.count_into(&mut snapshot);
        snapshot
    }

    /// The NUMA topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// How the memory manager was set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counts something on `cpu`, which executes the caller.
    pub(crate) fn count(&self, cpu: CpuId, counter: Counter, n: u64) {
        self.stats.add(cpu, counter, n);
    }

    /// Clears frames that `cpu`, which executes the caller, has allocated.
    pub(crate) fn clear(&self, cpu: CpuId, frame: FrameId, order: Order, touched_byte: usize) {
        let cleared = self.machine.clear(frame, order, touched_byte);
        self.count(
            cpu,
            Counter::ClearedBytesCached,
            cleared.cached_bytes as u64,
        );
        self.count(
            cpu,
            Counter::ClearedBytesNontemporal,
            cleared.nontemporal_bytes as u64,
        );
    }

    /// A page-table page as the machine shows it.
    pub(crate) fn table(&self, frame: FrameId) -> Table<'_, M> {
        Table::new(&self.machine, frame)
    }

    /// One turn of a busy wait: does what others may be waiting for.
    pub(crate) fn spin(&self) {
        self.poll_shootdowns();
        self.machine.relax();
    }
}
