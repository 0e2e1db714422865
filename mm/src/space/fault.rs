//! Page faults.
//!
//! **Size.** The first fault in a slot of 2 MiB that is uniform (so there is no table under its entry)
//! asks the THP mode. A huge page comes from the node that the placement policy names for the
//! *faulting* address, or not at all: small pages on that node are better than a huge one on another. When
//! there is none the slot gets a table and the fault goes on with 4 KiB at once.
//!
//! **Races.** A 4 KiB page is allocated and cleared without a lock, then the table is locked and
//! everything checked again; whoever finds the page mapped by then gives his frame back and reports
//! a spurious fault. A huge page is cleared under the lock of its entry: two megabytes cleared for nothing
//! would cost more than the wait.
//!
//! Not-present to present needs no flush: no TLB holds what was not present.

use super::entry::Entry;
use super::state::State;
use super::walk::{Unit, Walk};
use crate::error::FaultError;
use crate::frame::{FrameKind, Reach};
use crate::ids::{FrameId, NodeId, Order, PAGE_BYTES, PageSize, VirtAddr};
use crate::machine::Machine;
use crate::manager::MemoryManager;
use crate::request::{Access, FaultOutcome};
use crate::stats::Counter;

impl State {
    /// Whether pages in this state may be accessed in this way.
    fn admits(self, access: Access) -> Result<(), FaultError> {
        if self.is_unreserved() {
            Err(FaultError::Unmapped)
        } else if self.is_guard() {
            Err(FaultError::Guard)
        } else if !self.prot().allows(access) {
            Err(FaultError::Protection)
        } else {
            Ok(())
        }
    }
}

impl<M: Machine> MemoryManager<M> {
    /// Maps the page at `address`, or finds out why not.
    pub(crate) fn resolve(
        &self,
        address: VirtAddr,
        access: Access,
    ) -> Result<FaultOutcome, FaultError> {
        if !self.config.arena.contains(address) {
            return Err(FaultError::Unmapped);
        }
        let walk = Walk::enter(self);
        loop {
            let spot = walk.find(address);
            if spot.entry.is_leaf() && spot.entry.prot().allows(access) {
                return Ok(walk.found(spot.entry, spot.level));
            }
            let attempt = if spot.level == 1 && spot.entry == Entry::EMPTY {
                spot.state().admits(access)?;
                walk.map_base(address, access)?
            } else {
                walk.map_in_unit(address, access)?
            };
            if let Some(outcome) = attempt {
                return Ok(outcome);
            }
        }
    }
}

impl<M: Machine> Walk<'_, M> {
    /// The outcome of a fault on a page that is mapped already.
    fn found(&self, entry: Entry, level: usize) -> FaultOutcome {
        FaultOutcome {
            size: if level == 1 {
                PageSize::Base
            } else {
                PageSize::Huge
            },
            node: self.node_of(entry.frame()),
            spurious: true,
        }
    }

    fn node_of(&self, frame: FrameId) -> NodeId {
        // Every frame in the arena came from the allocator.
        self.mm.frames.node_of(frame).unwrap_or(NodeId::new(0))
    }

    fn policy_node(&self, address: VirtAddr) -> NodeId {
        let mm = self.mm;
        mm.config.numa.node_for(&mm.topology, self.cpu, address)
    }

    /// Maps a 4 KiB page where there was none. `None`: things have changed, look again.
    fn map_base(
        &self,
        address: VirtAddr,
        access: Access,
    ) -> Result<Option<FaultOutcome>, FaultError> {
        let mm = self.mm;
        let frame = mm
            .alloc_frames(
                self.cpu,
                self.policy_node(address),
                Order::BASE,
                FrameKind::Movable,
                Reach::AnyNode,
            )
            .ok_or(FaultError::OutOfMemory)?;
        let touched = (address.0 % PAGE_BYTES as u64) as usize;
        mm.clear(self.cpu, frame, Order::BASE, touched);
        let unit = self.lock(address);
        let admitted = unit.state().admits(access);
        if unit.level != 1 || unit.entry() != Entry::EMPTY || admitted.is_err() {
            drop(unit);
            mm.frames
                .free(self.cpu, frame, Order::BASE, FrameKind::Movable);
            return admitted.map(|()| None);
        }
        let (table, index) = (unit.table(), unit.index());
        let prot = unit.state().prot();
        table.install(index, Entry::leaf(frame, PageSize::Base, prot));
        table.set_mapped(table.mapped() + 1);
        drop(unit);
        Ok(Some(self.mapped(frame, PageSize::Base)))
    }

    /// Resolves a fault under the lock of its unit: where there is no table yet, or a page that does
    /// not seem to allow the access. `None`: look again.
    fn map_in_unit(
        &self,
        address: VirtAddr,
        access: Access,
    ) -> Result<Option<FaultOutcome>, FaultError> {
        let unit = self.lock(address);
        unit.state().admits(access)?;
        if unit.level == 1 || unit.entry().is_leaf() {
            return Ok(None);
        }
        let wanted = self.mm.config.thp.size_for(unit.state().huge());
        if unit.level != 2 || wanted == PageSize::Base {
            unit.push_down().map_err(|_| FaultError::OutOfMemory)?;
            return Ok(None);
        }
        self.map_huge(address, unit)
    }

    fn map_huge(
        &self,
        address: VirtAddr,
        unit: Unit<'_, '_, M>,
    ) -> Result<Option<FaultOutcome>, FaultError> {
        let mm = self.mm;
        let Some(frame) = mm.alloc_frames(
            self.cpu,
            self.policy_node(address),
            Order::HUGE,
            FrameKind::Movable,
            Reach::ThisNode,
        ) else {
            mm.count(self.cpu, Counter::ThpFaultFallback, 1);
            unit.push_down().map_err(|_| FaultError::OutOfMemory)?;
            return Ok(None);
        };
        let touched = (address.0 - unit.base().0) as usize;
        mm.clear(self.cpu, frame, Order::HUGE, touched);
        let prot = unit.state().prot();
        unit.replace(Entry::leaf(frame, PageSize::Huge, prot));
        mm.count(self.cpu, Counter::ThpFaultAlloc, 1);
        Ok(Some(self.mapped(frame, PageSize::Huge)))
    }

    /// Counts a page that this fault mapped.
    fn mapped(&self, frame: FrameId, size: PageSize) -> FaultOutcome {
        let node = self.node_of(frame);
        self.mm.count(self.cpu, Counter::Fault(size, node), 1);
        self.mm
            .space
            .count_mapped(self.cpu, size.order().frames() as u64);
        FaultOutcome {
            size,
            node,
            spurious: false,
        }
    }
}
