//! 64 processors on 4 nodes, on the simulated caches of [`lines`].

extern crate std;

use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

use super::*;
use crate::sim::lines;
use crate::stats::{Counter, LockClass, Snapshot};

const CPUS: usize = 64;
const NODES: usize = 4;
const GIB: u64 = 1 << 30;

/// Builds with debug assertions simulate one of so many parts.
const PARTS: usize = if cfg!(debug_assertions) { 32 } else { 1 };

/// The allocator, and what its processors are doing.
struct Machine {
    frames: FrameAllocator,
    programs: Vec<RefCell<Program>>,
    random: RefCell<Random>,
    depth: Cell<usize>,
}

/// A processor's program: the frames that it holds, and whether it is freeing them.
#[derive(Default)]
struct Program {
    held: Vec<FrameId>,
    freeing: bool,
    /// Steps left to do.
    steps: usize,
}

impl Machine {
    fn new(node_bytes: u64) -> Rc<Self> {
        let ram: Vec<RamRange> = (0..NODES)
            .map(|on| ram(on as u64 * node_bytes, node_bytes, on))
            .collect();
        Rc::new(Self {
            frames: allocator(&ram, CPUS),
            programs: (0..CPUS).map(|_| RefCell::default()).collect(),
            random: RefCell::new(Random(1)),
            depth: Cell::new(0),
        })
    }

    fn counted(&self) -> Snapshot {
        let mut snapshot = Snapshot::empty(NODES);
        self.frames.count_into(&mut snapshot);
        snapshot
    }

    /// A random processor with steps left that is not in the middle of one, or nobody.
    fn idle(&self) -> Option<usize> {
        let first = self.random.borrow_mut().below(CPUS);
        let mut cpus = (first..first + CPUS).map(|cpu| cpu % CPUS);
        cpus.find(|&cpu| {
            let program = self.programs[cpu].try_borrow();
            program.is_ok_and(|program| program.steps > 0)
        })
    }

    /// Lets other processors do `step` in the middle of somebody's operation; up to three stand
    /// still at the same time.
    fn others(self: &Rc<Self>, step: fn(&Self, usize)) -> Rc<dyn Fn()> {
        let machine = Rc::downgrade(self);
        Rc::new(move || {
            let Some(machine) = machine.upgrade() else {
                return;
            };
            if machine.depth.get() < 3 {
                machine.depth.set(machine.depth.get() + 1);
                for _ in 0..3 {
                    if let Some(cpu) = machine.idle() {
                        lines::as_cpu(cpu, || step(&machine, cpu));
                    }
                }
                machine.depth.set(machine.depth.get() - 1);
            }
        })
    }

    /// Lets processors take turns at random until none has a step left.
    fn run(&self, step: fn(&Self, usize)) {
        while let Some(cpu) = self.idle() {
            let turns = 1 + self.random.borrow_mut().below(100);
            for _ in 0..turns {
                lines::as_cpu(cpu, || step(self, cpu));
            }
        }
    }

    fn give_steps(&self, steps: usize) {
        for program in &self.programs {
            program.borrow_mut().steps = steps;
        }
    }

    /// A step of page_fault1: allocate 128 MiB, free them in the same order, and so on.
    fn page_fault(&self, cpu: usize) {
        const FRAMES: usize = (128 << 20) / 4096 / PARTS;
        let mut program = self.programs[cpu].borrow_mut();
        if program.steps == 0 {
            return;
        }
        program.steps -= 1;
        if program.freeing {
            let frame = program.held.pop().unwrap();
            self.frames.put(super::cpu(cpu), frame, Order::BASE);
            if program.held.is_empty() {
                program.freeing = false;
            }
        } else {
            let frame = self.frames.any(cpu, Order::BASE).unwrap();
            program.held.push(frame);
            if program.held.len() == FRAMES {
                program.held.reverse();
                program.freeing = true;
            }
        }
    }

    /// Frees the next frame of a huge page, as after a split.
    fn free_next(&self, cpu: usize) {
        let mut program = self.programs[cpu].borrow_mut();
        if program.steps == 0 {
            return;
        }
        program.steps -= 1;
        let within = program.steps % FRAMES_PER_BLOCK;
        let huge = *program.held.last().unwrap();
        if within == 0 {
            program.held.pop();
        }
        self.frames
            .put(super::cpu(cpu), huge.add(within), Order::BASE);
    }
}

/// Failed compare-exchanges and everything else that one processor did to another's operations.
fn contention(counted: &Snapshot) -> u64 {
    [
        LockClass::FrameEntry,
        LockClass::FrameMap,
        LockClass::FrameHint,
    ]
    .into_iter()
    .map(|class| counted.get(Counter::LockWait(class)))
    .sum()
}

#[test]
fn page_faults_on_64_processors_touch_no_line_that_another_one_wrote() {
    let round = 2 * (128 << 20) / 4096 / PARTS;
    for pause_one_in in [0, 50] {
        let machine = Machine::new(16 * GIB);
        let others = machine.others(Machine::page_fault);
        lines::watch(pause_one_in, others, || {
            // The first rounds spread the processors over time, and tell where blocks are.
            for (cpu, program) in machine.programs.iter().enumerate() {
                program.borrow_mut().steps = round + round * cpu / CPUS;
            }
            machine.run(Machine::page_fault);
            machine.give_steps(round);
            machine.run(Machine::page_fault);
            let before = lines::transfers();
            machine.give_steps(round);
            machine.run(Machine::page_fault);
            assert_eq!(lines::transfers() - before, 0);
        });
        let counted = machine.counted();
        assert!(counted.get(Counter::PgFree) >= (3 * CPUS * round / 4) as u64);
        for counter in [
            Counter::RemoteFree,
            Counter::BlockSteal,
            Counter::CacheDrain,
            Counter::NumaMiss,
        ] {
            assert_eq!(counted.get(counter), 0, "{}", counter.name());
        }
        assert_eq!(contention(&counted), 0);
        machine.frames.check();
    }
}

#[test]
fn freeing_512_gib_on_64_processors_causes_less_than_10_contention_events_per_million() {
    let machine = Machine::new(512 * GIB / NODES as u64);
    let blocks = ((512 * GIB as usize) >> 21) / CPUS / PARTS;
    for (cpu, program) in machine.programs.iter().enumerate() {
        let huge = (0..blocks).map(|_| machine.frames.any(cpu, Order::HUGE).unwrap());
        program.borrow_mut().held.extend(huge);
    }
    let before = machine.counted();
    machine.give_steps(blocks * FRAMES_PER_BLOCK);
    let others = machine.others(Machine::free_next);
    let transfers = lines::watch(200, others, || {
        machine.run(Machine::free_next);
        lines::transfers()
    });
    let counted = machine.counted().since(&before);
    let frees = counted.get(Counter::PgFree);
    assert_eq!(frees, (CPUS * blocks * FRAMES_PER_BLOCK) as u64);
    let events = contention(&counted) + counted.get(Counter::RemoteFree) + transfers;
    // Each processor tells once that it has blocks of a class.
    let once = if PARTS > 1 { 9 * CPUS as u64 } else { 0 };
    assert!(
        events * 1_000_000 < 10 * frees + once * 1_000_000,
        "{events} events, {transfers} transfers among them, in {frees} frees"
    );
}

#[test]
fn what_processors_share_is_noticed() {
    // The check of the check: frames that others have allocated, and a node without plenty.
    let machine = Machine::new(2 * GIB);
    let frames: Vec<FrameId> = (0..2000)
        .map(|_| machine.frames.any(0, Order::BASE).unwrap())
        .collect();
    let seen = lines::watch(0, Rc::new(|| {}), || {
        for (index, &frame) in frames.iter().enumerate() {
            let by = index % 16;
            lines::as_cpu(by, || machine.frames.put(cpu(by), frame, Order::BASE));
        }
        lines::transfers()
    });
    assert!(seen > 50, "{seen}");
}
