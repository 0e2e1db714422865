//! A simulated machine behind [`Machine`]: nodes, processors with software TLBs, and interrupts that
//! arrive late.
//!
//! **What is checked on every step** (rule 6). When a frame is handed out (the memory manager
//! clears every frame that it takes), no TLB and no page-structure cache of any processor may lead to
//! it, and no walk of the memory manager that goes on may have been there. Words of page tables are
//! read and written only in frames that serve as tables. There is never more than one
//! interrupt on its way to a processor. [`Sim::check_tlbs`] adds, between calls: every cached translation
//! agrees with the tables and allows no more than they do.
//!
//! **Schedules.** [`Schedule::Stepped`]: one thread plays all processors, a call at a time, and others
//! serve interrupts while it waits; exact comparison with a plain model. [`Schedule::Interleaved`]: a
//! thread for each processor, of which one runs at a time; at each step the generator may pass
//! control on. Both repeat exactly from their seed. [`Schedule::Free`]: real threads at full speed.
//!
//! **Data.** A page holds one word, whatever offset is accessed. Cleared frames hold 0.

mod cpu;
mod fence;
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) mod lines;
mod schedule;
#[cfg(test)]
mod tests;

use std::boxed::Box;
use std::format;
use std::string::String;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::vec::Vec;

use crate::clear::Cleared;
use crate::frame::RamRange;
use crate::ids::{
    CpuId, FrameId, NodeId, Order, PAGE_BYTES, PageSize, PhysAddr, VirtAddr, VirtRange,
};
use crate::machine::{Machine, Table};
use crate::manager::MemoryManager;
use crate::numa::{Policy, Topology, split_cpus};
use crate::request::{ARENA_ALIGN_BYTES, Config};
use crate::thp::ThpMode;
use cpu::{Caches, Translation};
use schedule::Scheduler;

pub use cpu::SimCpu;
pub use fence::fence_others;
pub use schedule::{Random, Schedule};

/// Where the simulated RAM begins; the root table is below.
const RAM_START: usize = 2 << 20;
const ROOT: FrameId = FrameId::new(16);

/// What a simulated machine has.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Processors.
    pub cpus: usize,
    /// Nodes, with equal parts of processors and RAM.
    pub nodes: usize,
    /// RAM of each node.
    pub node_bytes: usize,
    /// When faults map huge pages.
    pub thp: ThpMode,
    /// How processors take turns.
    pub schedule: Schedule,
    /// Everything random follows from it.
    pub seed: u64,
    /// A processor whose TLB ignores what it is told: the fault that the checks must find.
    pub deaf_cpu: Option<CpuId>,
}

impl SimConfig {
    /// A machine that works, stepped.
    pub const fn new(cpus: usize, nodes: usize, node_bytes: usize, thp: ThpMode) -> Self {
        Self {
            cpus,
            nodes,
            node_bytes,
            thp,
            schedule: Schedule::Stepped,
            seed: 1,
            deaf_cpu: None,
        }
    }
}

const FREE: u8 = 0;
const TABLE: u8 = 1;
const DATA: u8 = 2;

/// A frame of the simulated RAM.
struct SimFrame {
    /// What it was last handed out for.
    role: AtomicU8,
    /// The word of a page.
    data: AtomicU64,
    /// The words of a table.
    table: OnceLock<Box<Table>>,
}

/// The simulated machine.
pub struct SimMachine {
    config: SimConfig,
    frames: Box<[SimFrame]>,
    caches: Box<[Caches]>,
    /// How often a processor has entered or left a walk of the memory manager.
    walks: OnceLock<Box<dyn Fn(CpuId) -> u64 + Send + Sync>>,
    scheduler: Scheduler,
}

impl SimMachine {
    fn new(config: SimConfig) -> Self {
        let frames = (RAM_START + config.nodes * config.node_bytes) / PAGE_BYTES;
        let frame = |number| SimFrame {
            role: AtomicU8::new(if number == ROOT.index() { TABLE } else { FREE }),
            data: AtomicU64::new(0),
            table: OnceLock::new(),
        };
        Self {
            config,
            frames: (0..frames).map(frame).collect(),
            caches: (0..config.cpus).map(|_| Caches::default()).collect(),
            walks: OnceLock::new(),
            scheduler: Scheduler::new(config.schedule, config.cpus, config.seed),
        }
    }

    /// A word of a table, as the processor's walker reads it.
    fn table_word(&self, frame: FrameId, index: usize) -> &AtomicU64 {
        &self.table_words(frame)[index]
    }

    fn table_words(&self, frame: FrameId) -> &Table {
        let sim_frame = &self.frames[frame.index()];
        if sim_frame.role.load(Ordering::SeqCst) != TABLE {
            self.scheduler
                .fail(format!("{frame:?} is used as a table, but it is not one"));
        }
        sim_frame
            .table
            .get_or_init(|| Box::new([const { AtomicU64::new(0) }; 512]))
    }

    /// Rule 6: nobody can reach the frames that are being handed out.
    fn check_unreachable(&self, first: FrameId, frames: usize) {
        for (number, caches) in self.caches.iter().enumerate() {
            if let Some(what) = caches.leads_to(first, frames) {
                self.scheduler.fail(format!(
                    "{first:?} is handed out again while processor {number} still has {what}"
                ));
            }
            let walks = self
                .walks
                .get()
                .map(|walks| walks(CpuId::new(number as u16)));
            let theirs = number != self.this_cpu().index();
            if theirs && walks.is_some_and(|walks| caches.is_walking(walks, first, frames)) {
                self.scheduler.fail(format!(
                    "{first:?} is handed out again while processor {number} walks through it"
                ));
            }
        }
    }
}

impl Machine for SimMachine {
    fn cpu_count(&self) -> usize {
        self.config.cpus
    }

    fn this_cpu(&self) -> CpuId {
        schedule::current()
    }

    fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        split_cpus(self.config.cpus, self.config.nodes)[cpu.index()]
    }

    fn is_online(&self, _: CpuId) -> bool {
        true
    }

    fn table(&self, frame: FrameId) -> &Table {
        self.scheduler.step();
        if let Some(walks) = self.walks.get() {
            let cpu = self.this_cpu();
            self.caches[cpu.index()].note_walk(walks(cpu), frame);
        }
        self.table_words(frame)
    }

    fn clear(&self, frame: FrameId, order: Order, _: usize) -> Cleared {
        self.scheduler.step();
        self.check_unreachable(frame, order.frames());
        // Tables come in pairs with their metadata; pages never do.
        let role = if order.frames() == 2 { TABLE } else { DATA };
        for sim_frame in &self.frames[frame.index()..][..order.frames()] {
            sim_frame.role.store(role, Ordering::SeqCst);
            sim_frame.data.store(0, Ordering::SeqCst);
            for word in sim_frame
                .table
                .get()
                .into_iter()
                .flat_map(|table| table.iter())
            {
                word.store(0, Ordering::SeqCst);
            }
        }
        Cleared {
            cached_bytes: order.bytes(),
            nontemporal_bytes: 0,
        }
    }

    fn flush_page(&self, page: VirtAddr, size: PageSize) {
        self.scheduler.pass();
        let cpu = self.this_cpu();
        if self.config.deaf_cpu != Some(cpu) {
            self.caches[cpu.index()].flush_page(page, size);
        }
    }

    fn flush_all(&self) {
        self.scheduler.pass();
        let cpu = self.this_cpu();
        if self.config.deaf_cpu != Some(cpu) {
            self.caches[cpu.index()].flush_all();
        }
    }

    fn send_shootdown(&self, cpu: CpuId) {
        self.scheduler.step();
        self.scheduler.interrupt(cpu);
    }

    fn relax(&self) {
        self.scheduler.relax();
    }
}

/// A simulated machine with its memory manager.
pub struct Sim {
    mm: Arc<MemoryManager<SimMachine>>,
    cpus: Vec<SimCpu>,
}

impl Sim {
    /// The first address of the arena.
    pub const ARENA: VirtAddr = VirtAddr(ARENA_ALIGN_BYTES as u64);

    /// A machine after its boot.
    pub fn new(config: SimConfig) -> Self {
        let ram: Vec<RamRange> = (0..config.nodes)
            .map(|node| RamRange {
                start: PhysAddr((RAM_START + node * config.node_bytes) as u64),
                bytes: config.node_bytes as u64,
                node: NodeId::new(node as u8),
            })
            .collect();
        let topology = Topology::uniform(config.nodes, &split_cpus(config.cpus, config.nodes))
            .expect("the simulated topology is sound");
        let mm_config = Config {
            thp: config.thp,
            numa: Policy::Local,
            debug_frames: None,
            arena: VirtRange::new(Self::ARENA, ARENA_ALIGN_BYTES),
            root: ROOT,
        };
        let machine = SimMachine::new(config);
        let mm = MemoryManager::new(machine, topology, &ram, mm_config)
            .expect("the simulated machine has enough of everything");
        let mm = Arc::new(mm);
        let weak = Arc::downgrade(&mm);
        mm.machine().scheduler.set_handler(Box::new(move || {
            if let Some(mm) = weak.upgrade() {
                mm.serve_shootdowns();
            }
        }));
        let weak = Arc::downgrade(&mm);
        let walks = move |cpu| weak.upgrade().map_or(0, |mm| mm.space.walk_count(cpu));
        let _ = mm.machine().walks.set(Box::new(walks));
        let cpus = (0..config.cpus)
            .map(|cpu| SimCpu::new(Arc::clone(&mm), CpuId::new(cpu as u16)))
            .collect();
        Self { mm, cpus }
    }

    /// The memory manager. Call it from inside of [`Sim::on`] or [`Sim::run`].
    pub fn mm(&self) -> &MemoryManager<SimMachine> {
        &self.mm
    }

    /// Lets a processor do something while no programs run. The others are idle.
    pub fn on<R>(&self, cpu: usize, work: impl FnOnce(&SimCpu) -> R) -> R {
        schedule::as_cpu(CpuId::new(cpu as u16), || work(&self.cpus[cpu]))
    }

    /// Lets all processors of a machine that is not stepped run the same program, and serve
    /// interrupts until everybody has ended. The first failure is returned.
    pub fn run(&self, program: impl Fn(&SimCpu) + Sync) -> Result<(), String> {
        self.mm
            .machine()
            .scheduler
            .run(|cpu| program(&self.cpus[cpu.index()]))
    }

    /// Compares every cached translation with the page tables. Nobody is in the middle of a call.
    pub fn check_tlbs(&self) -> Result<(), String> {
        for (number, caches) in self.mm.machine().caches.iter().enumerate() {
            for cached in caches.translations() {
                self.check_translation(&cached).map_err(|what| {
                    format!("processor {number} has {cached:?} cached, but {what}")
                })?;
            }
        }
        Ok(())
    }

    fn check_translation(&self, cached: &Translation) -> Result<(), String> {
        let pages = cached.size.order().frames();
        let mut index = 0;
        while index < pages {
            let at = VirtAddr(cached.page.0 + (index * PAGE_BYTES) as u64);
            let Some(mapping) = self.mm.lookup(at) else {
                return Err(format!("{at:?} is not mapped"));
            };
            let offset = at.0 % mapping.size.bytes() as u64 / PAGE_BYTES as u64;
            let agrees = mapping.frame.add(offset as usize) == cached.frame.add(index);
            let (has, may) = (cached.prot, mapping.prot);
            let wider =
                (has.read && !may.read) || (has.write && !may.write) || (has.exec && !may.exec);
            if !agrees || wider {
                return Err(format!("{at:?} is mapped as {mapping:?}"));
            }
            index += mapping.size.order().frames() - offset as usize;
        }
        Ok(())
    }

    /// Whether all frames that are allocated are accounted for.
    pub fn check_accounts(&self) -> Result<(), String> {
        let (mapped, tables) = (self.mm.mapped_frames(), self.mm.page_table_frames());
        let allocated = self.mm.frames().allocated_frames();
        if allocated == mapped + tables {
            Ok(())
        } else {
            Err(format!(
                "{allocated} frames are allocated, {mapped} mapped and {tables} in page tables"
            ))
        }
    }

    /// The number of translations that a processor's TLB holds for a range.
    pub fn cached(&self, cpu: usize, range: VirtRange) -> usize {
        let translations = self.mm.machine().caches[cpu].translations();
        translations
            .iter()
            .filter(|cached| {
                cached.page.0 < range.end().0
                    && range.start.0 < cached.page.0 + cached.size.bytes() as u64
            })
            .count()
    }

    /// A generator that follows from the seed.
    pub fn random(&self) -> Random {
        Random::new(self.mm.machine().config.seed ^ 0x5eed)
    }
}
