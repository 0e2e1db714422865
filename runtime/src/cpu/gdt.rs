//! Segments, the task state segment and the interrupt stacks of one processor.

use alloc::boxed::Box;

use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

use crate::cpu::local::stack;
use crate::sync::Once;

/// Interrupt stack for device interrupts and interprocessor interrupts.
pub(crate) const IST_INTERRUPT: u16 = 0;
/// Interrupt stack for page faults; they may be interrupted.
pub(crate) const IST_PAGE_FAULT: u16 = 1;
/// Interrupt stack for non-maskable interrupts.
pub(crate) const IST_NMI: u16 = 2;
/// Interrupt stack for double faults.
pub(crate) const IST_DOUBLE_FAULT: u16 = 3;
/// Interrupt stack for all other exceptions, which end the run.
pub(crate) const IST_EXCEPTION: u16 = 4;
/// Interrupt stack for machine checks, which come at any time.
pub(crate) const IST_MACHINE_CHECK: u16 = 5;

/// Bytes of each interrupt stack, by IST index.
const STACK_BYTES: [usize; 6] = [16 << 10, 32 << 10, 16 << 10, 16 << 10, 16 << 10, 16 << 10];

/// GDT and TSS of one processor.
pub(crate) struct Descriptors {
    tss: &'static TaskStateSegment,
    gdt: GlobalDescriptorTable,
    code: SegmentSelector,
    data: SegmentSelector,
    task: SegmentSelector,
}

/// The segments of the processor that boots, until its [`Descriptors`] exist.
static EARLY: Once<GlobalDescriptorTable> = Once::new();

/// Loads segments that lie in the image: the loader's table is gone with its page tables.
pub(crate) fn load_early() {
    let mut gdt = GlobalDescriptorTable::new();
    let code = gdt.append(Descriptor::kernel_code_segment());
    let data = gdt.append(Descriptor::kernel_data_segment());
    EARLY.set(gdt);
    EARLY.get().expect("just set").load();
    // SAFETY: the table just loaded has these selectors, and lives for ever.
    unsafe {
        CS::set_reg(code);
        SS::set_reg(data);
        DS::set_reg(data);
        ES::set_reg(data);
    }
}

impl Descriptors {
    /// Descriptors with interrupt stacks, not yet loaded.
    pub(crate) fn new() -> Self {
        let mut stacks = [VirtAddr::zero(); 7];
        for (top, bytes) in stacks.iter_mut().zip(STACK_BYTES) {
            *top = VirtAddr::new(stack(bytes));
        }
        let mut tss = TaskStateSegment::new();
        tss.interrupt_stack_table = stacks;
        let tss: &'static TaskStateSegment = Box::leak(Box::new(tss));
        let mut gdt = GlobalDescriptorTable::new();
        let code = gdt.append(Descriptor::kernel_code_segment());
        let data = gdt.append(Descriptor::kernel_data_segment());
        let task = gdt.append(Descriptor::tss_segment(tss));
        Self {
            tss,
            gdt,
            code,
            data,
            task,
        }
    }

    /// Loads segments and TSS on the executing processor. Clears the FS and GS bases.
    pub(crate) fn load(&'static self) {
        self.gdt.load();
        // SAFETY: the table just loaded has these selectors, and lives for ever.
        unsafe {
            CS::set_reg(self.code);
            SS::set_reg(self.data);
            DS::set_reg(self.data);
            ES::set_reg(self.data);
            FS::set_reg(SegmentSelector(0));
            GS::set_reg(SegmentSelector(0));
            load_tss(self.task);
        }
    }

    /// Whether `stack_pointer` lies in the page-fault stack.
    pub(crate) fn on_page_fault_stack(&self, stack_pointer: u64) -> bool {
        let stacks = self.tss.interrupt_stack_table;
        let top = stacks[usize::from(IST_PAGE_FAULT)].as_u64();
        (top - STACK_BYTES[usize::from(IST_PAGE_FAULT)] as u64..=top).contains(&stack_pointer)
    }
}
