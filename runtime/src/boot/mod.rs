//! From the loader's hand-over to the application's first instruction.

mod application;
mod image;
pub(crate) mod smp;
pub(crate) mod tls;

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use dolmen_firmware::PhysicalMemory;
use dolmen_firmware::acpi::Acpi;
use dolmen_firmware::bootargs::{BootArgs, ThpMode};
use dolmen_firmware::fdt::{self, BootTree};
use dolmen_firmware::machine::{Limits, Machine};
use dolmen_firmware::ranges::Range as PhysicalRange;
use dolmen_fs::Tree;
use dolmen_mm::clear::Strategy;
use dolmen_mm::frame::RamRange;
use dolmen_mm::ids::{CpuId, FrameId, MAX_CPUS, MAX_NODES, NodeId, PhysAddr};
use dolmen_mm::numa::{Policy, Topology};
use dolmen_mm::{Config, MemoryManager};
use hermit_entry::boot_info::{BootInfo, PlatformInfo, RawBootInfo};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr3, Cr3Flags, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::structures::paging::PhysFrame;

use crate::cpu::features::Features;
use crate::cpu::local::Local;
use crate::cpu::{apic, clock, fpu, interrupts, local, machine_check, thread_pointer};
use crate::dev::{pic, terminal, uhyve};
use crate::fatal::refuse;
use crate::mem::{self, X86Machine, direct, kernel_heap};
use crate::sched::thread::Entry;
use crate::sync::Once;
use crate::{console, entropy, host, sched, syscall};

/// Memory below which nothing useful can run.
const MIN_MEMORY_BYTES: u64 = 24 << 20;
/// Bytes of the main thread's stack. Only what is touched takes memory.
const MAIN_STACK_BYTES: usize = 8 << 20;

const LIMITS: Limits = Limits {
    cpus: MAX_CPUS,
    nodes: MAX_NODES,
};

/// What was decided at boot and is told at exit.
pub(crate) struct Settings {
    pub(crate) memory_bytes: u64,
    pub(crate) thp: &'static str,
    pub(crate) numa: &'static str,
    image: Range<u64>,
    image_node: NodeId,
    args: BootArgs,
}

static SETTINGS: Once<Settings> = Once::new();
static MAIN_STARTED: AtomicU64 = AtomicU64::new(0);

/// What was decided at boot, once it is.
pub(crate) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Where the image is loaded, first address and first address behind.
pub(crate) fn image_range() -> Option<(u64, u64)> {
    SETTINGS
        .get()
        .map(|settings| (settings.image.start, settings.image.end))
}

/// The node that the image is on, if it holds `address`.
pub(crate) fn node_of_image(address: u64) -> Option<NodeId> {
    let settings = SETTINGS.get()?;
    settings
        .image
        .contains(&address)
        .then_some(settings.image_node)
}

/// The clock when the application's main thread was started.
pub(crate) fn main_started_at() -> u64 {
    MAIN_STARTED.load(Ordering::Relaxed)
}

/// Ticks of the application's run since the clock read `start`: what lies before its start does
/// not count.
pub(crate) fn run_ticks_since(start: u64) -> u64 {
    clock::ticks().saturating_sub(start.max(main_started_at()))
}

/// Sets the machine up and starts the application.
pub(crate) extern "C" fn start(raw: &'static RawBootInfo) -> ! {
    clock::mark_entry();
    interrupts::load_early();
    kernel_heap::begin();
    let info = BootInfo::from(*raw);
    if let PlatformInfo::Uhyve { .. } = info.platform_info {
        uhyve::announce();
    }
    terminal::open(info.hardware_info.serial_port_base.map(|port| port.get()));
    let features = Features::detect();
    direct::configure(&features);

    let mut tree = read_tree(&info);
    // First of all, so that whatever follows can be told to the host tool.
    let args =
        BootArgs::parse(&tree.bootargs).unwrap_or_else(|error| refuse(format_args!("{error}")));
    if args.report {
        console::enable_records();
    }
    let image = info.load_info.kernel_image_addr_range.clone();
    tree.reservations
        .push(PhysicalRange::new(image.start, image.end));
    tree.reservations.extend(tree.initrd);
    if uhyve::is_present() {
        // Processors that wait in the entry still use the page tables below the image.
        let start = info.hardware_info.phys_addr_range.start;
        tree.reservations
            .push(PhysicalRange::new(start, image.start));
    }

    let first_look = Machine::describe(&tree, None, 0, LIMITS)
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    if first_look.memory_bytes() < MIN_MEMORY_BYTES {
        refuse(format_args!(
            "{} MiB of usable memory are too little; at least {} MiB are needed beside the image",
            first_look.memory_bytes() >> 20,
            MIN_MEMORY_BYTES >> 20
        ));
    }
    image::map(image.clone());
    let set_aside = set_aside_memory(&first_look, tree.cpus.len());
    take_over_page_tables(&features);
    kernel_heap::set_aside(set_aside.start, set_aside.bytes() as usize);
    // A loader may leave out of the memory ranges what it reserves.
    let ram = tree.memory.iter().map(|memory| memory.range);
    for range in ram.chain(tree.reservations.iter().copied()) {
        direct::map_ram(range.start, range.bytes());
    }

    let acpi = tree.rsdp.map(|rsdp| {
        Acpi::parse(&Firmware, rsdp).unwrap_or_else(|error| refuse(format_args!("{error}")))
    });
    tree.reservations.push(set_aside);
    apic::enable(&features);
    let mut machine = Machine::describe(&tree, acpi.as_ref(), apic::id(), LIMITS)
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    if let Some(nodes) = args.numa_fake {
        machine
            .fake_nodes(nodes, LIMITS)
            .unwrap_or_else(|error| refuse(format_args!("{error}")));
    }

    let mut cpus = (0..).zip(&machine.cpus).map(|(number, cpu)| {
        let node = NodeId::new(cpu.node as u8);
        (CpuId::new(number), node, cpu.apic_id)
    });
    let (cpu, node, apic_id) = cpus.next().expect("the processor that booted is one");
    let boot_cpu = Local::publish(cpu, node, apic_id);
    pic::mask();
    interrupts::build();
    load_descriptors(boot_cpu);
    machine_check::enable(&features);
    apic::accept_nmi();
    fpu::enable(&features);
    thread_pointer::enable(&features);
    sched::become_idle_context();

    clock::calibrate(told_frequency(&info, &tree), told_time(&info));
    apic::calibrate_timer();
    entropy::seed(&features);
    start_memory_manager(&machine, &args);
    for (cpu, node, apic_id) in cpus {
        Local::publish(cpu, node, apic_id);
    }
    if let Some(template) = info.load_info.tls_info {
        tls::set_template(template);
    }
    syscall::mount(read_files(tree.initrd));
    if !uhyve::is_present() {
        host::ninep::mount(&args.mounts);
    } else if args.mounts.is_empty() {
        host::install(&host::uhyve::Files);
    } else {
        refuse(format_args!(
            "the boot argument 'mount' means virtio devices; under uhyve files come with --file-mapping"
        ));
    }
    for note in machine.notes.iter().chain(&args.notes) {
        console::line(format_args!("{note}"));
    }
    SETTINGS.set(Settings {
        memory_bytes: tree.memory.iter().map(|memory| memory.range.bytes()).sum(),
        thp: args.thp.unwrap_or(ThpMode::Never).name(),
        numa: "local",
        image_node: node_of(&machine, image.start),
        image,
        args,
    });
    interrupts::go_online();
    smp::start_all(if uhyve::is_present() {
        smp::Others::Parked
    } else {
        smp::Others::InReset
    });

    MAIN_STARTED.store(clock::ticks(), Ordering::Relaxed);
    for local in local::all() {
        local.idle_ticks.store(0, Ordering::Relaxed);
        local.memory_ticks.store(0, Ordering::Relaxed);
    }
    let main = Entry {
        function: application::main_thread,
        argument: 0,
    };
    if sched::spawn::spawn(main, MAIN_STACK_BYTES, Some(boot_cpu.cpu)).is_none() {
        refuse(format_args!("there is no memory for the main thread"));
    }
    sched::idle_loop()
}

/// Copies and reads the device tree, which the loader mapped at its physical address.
fn read_tree(info: &BootInfo) -> BootTree {
    let Some(address) = info.hardware_info.device_tree else {
        refuse(format_args!("the loader hands over no device tree"));
    };
    let start = core::ptr::with_exposed_provenance::<u8>(address.get() as usize);
    // SAFETY: the entry protocol has the device tree mapped at this address; its header says how
    // long it is.
    let blob = unsafe {
        let header = core::slice::from_raw_parts(start, fdt::HEADER_BYTES);
        let bytes = fdt::total_size(header).unwrap_or_else(|error| refuse(format_args!("{error}")));
        core::slice::from_raw_parts(start, bytes)
    };
    BootTree::parse(blob).unwrap_or_else(|error| refuse(format_args!("{error}")))
}

/// Chooses and maps the part of RAM that the kernel uses before frames can be allocated: for the
/// memory manager's own data, the first processor, and page tables of the direct map.
fn set_aside_memory(machine: &Machine, cpus: usize) -> PhysicalRange {
    let total = machine.memory_bytes();
    // Frame metadata takes less than 1/10000 of memory, page tables of the direct map at most 1/512
    // of what 2 MiB pages do not cover.
    let bytes = (1 << 20) + total / 2048 + (cpus.max(MAX_CPUS) as u64) * 4096;
    let bytes = bytes.next_multiple_of(2 << 20);
    let largest = machine
        .memory
        .iter()
        .max_by_key(|range| range.bytes)
        .expect("a machine has memory");
    if largest.bytes < bytes {
        refuse(format_args!(
            "no range of memory holds the {} MiB that the memory manager needs",
            bytes >> 20
        ));
    }
    let range = PhysicalRange::with_len(largest.start, bytes);
    direct::map_ram(range.start, range.bytes());
    range
}

/// Leaves the loader's page tables for the kernel's own.
fn take_over_page_tables(features: &Features) {
    // SAFETY: the new tables map the image, in which this code and its stack lie, where it is.
    // Write protection holds for ring 0 from here on.
    unsafe {
        if features.no_execute {
            Efer::update(|efer| efer.insert(EferFlags::NO_EXECUTE_ENABLE));
        }
        Cr3::write(
            PhysFrame::containing_address(x86_64::PhysAddr::new(direct::root())),
            Cr3Flags::empty(),
        );
        Cr4::update(|cr4| cr4.set(Cr4Flags::PAGE_GLOBAL, features.global_pages));
        Cr0::update(|cr0| cr0.insert(Cr0Flags::WRITE_PROTECT));
    }
}

/// Segments, task state and interrupts of the executing processor.
fn load_descriptors(local: &'static Local) {
    local.descriptors.load();
    local.install();
    interrupts::load();
}

fn told_frequency(info: &BootInfo, tree: &BootTree) -> Option<u64> {
    let told = match info.platform_info {
        PlatformInfo::Uhyve { cpu_freq, .. } => cpu_freq.map(|khz| u64::from(khz.get())),
        _ => None,
    };
    told.or(tree.tsc_khz.map(u64::from))
}

/// Nanoseconds since 1970 when the machine was started.
fn told_time(info: &BootInfo) -> Option<u64> {
    match info.platform_info {
        PlatformInfo::Uhyve { boot_time, .. } => boot_time.unix_timestamp_nanos().try_into().ok(),
        _ => None,
    }
}

fn start_memory_manager(machine: &Machine, args: &BootArgs) {
    let nodes: Vec<NodeId> = machine
        .cpus
        .iter()
        .map(|cpu| NodeId::new(cpu.node as u8))
        .collect();
    let topology = Topology::new(machine.nodes, &machine.distances, &nodes)
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    let ram: Vec<RamRange> = machine
        .memory
        .iter()
        .map(|range| RamRange {
            start: PhysAddr(range.start),
            bytes: range.bytes,
            node: NodeId::new(range.node as u8),
        })
        .collect();
    let config = Config {
        thp: match args.thp.unwrap_or(ThpMode::Never) {
            ThpMode::Never => dolmen_mm::thp::ThpMode::Never,
            ThpMode::Always => dolmen_mm::thp::ThpMode::Always,
        },
        numa: Policy::Local,
        debug_frames: args.debug_frames.then_some(&direct::Frames),
        arena: mem::ARENA,
        root: FrameId::containing(PhysAddr(direct::root())),
    };
    let cpus = machine.cpus.len();
    let hardware = X86Machine {
        cpus,
        clearing: Strategy::DEFAULT,
    };
    let manager = MemoryManager::new(hardware, topology, &ram, config)
        .unwrap_or_else(|error| refuse(format_args!("{error}")));
    kernel_heap::prepare(cpus);
    mem::install(manager);
    mem::app_heap::prepare(cpus, machine.memory_bytes());
}

fn node_of(machine: &Machine, address: u64) -> NodeId {
    // The image itself is not usable memory: its node is that of the closest range.
    let closest = machine.memory.iter().min_by_key(|range| {
        let end = range.start + range.bytes;
        address.abs_diff(range.start).min(address.abs_diff(end))
    });
    NodeId::new(closest.map_or(0, |range| range.node as u8))
}

/// The tree of files that the loader unpacked.
fn read_files(archive: Option<PhysicalRange>) -> Tree<'static> {
    let tree = match archive {
        None => Tree::empty(),
        Some(range) => {
            let start = direct::pointer::<u8>(range.start);
            // SAFETY: the archive lies in RAM, which the direct map covers, and in a reservation,
            // so nobody writes to it.
            let bytes = unsafe { core::slice::from_raw_parts(start, range.bytes() as usize) };
            Tree::from_tar(bytes)
        }
    };
    tree.unwrap_or_else(|error| refuse(format_args!("the image's files: {error}")))
}

/// The firmware's memory, through the direct map.
struct Firmware;

impl PhysicalMemory for Firmware {
    fn read(&self, physical: u64, bytes: usize) -> Option<&[u8]> {
        direct::firmware_bytes(physical, bytes)
    }
}
