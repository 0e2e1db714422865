//! Thread-local storage: variant II of Drepper's "ELF Handling For Thread-Local Storage", as x86-64
//! has it. The variables lie below the thread pointer, which points to its own address.

use hermit_entry::boot_info::TlsInfo;

use crate::sync::Once;

/// Bytes at the thread pointer: its own address and room for what compilers expect behind it (the
/// stack protector's canary lies at offset 40).
const CONTROL_BYTES: usize = 64;

static TEMPLATE: Once<TlsInfo> = Once::new();

/// Notes the image's template.
pub(super) fn set_template(template: TlsInfo) {
    TEMPLATE.set(template);
}

/// Alignment of the thread pointer.
fn align() -> usize {
    TEMPLATE
        .get()
        .map_or(16, |template| (template.align as usize).max(16))
}

/// Distance of the variables below the thread pointer: their size, rounded up to the alignment of
/// the segment, and to no more than that, since the linker computed offsets with it.
fn variable_bytes() -> usize {
    TEMPLATE.get().map_or(0, |template| {
        (template.memsz as usize).next_multiple_of((template.align as usize).max(1))
    })
}

/// Bytes that one thread needs, wherever they start.
pub(crate) fn block_bytes() -> usize {
    align() + variable_bytes() + CONTROL_BYTES
}

/// Fills the block of the executing thread, which starts at `start`; returns the thread pointer.
pub(crate) fn make_block(start: u64) -> u64 {
    let pointer = (start as usize + variable_bytes()).next_multiple_of(align());
    let first = pointer - variable_bytes();
    let block = core::ptr::with_exposed_provenance_mut::<u8>(first);
    // SAFETY: `sched::spawn` reserved `block_bytes` bytes at `start` for this thread; the template
    // is part of the image. Stacks are used again, so what the template does not set is cleared.
    unsafe {
        block.write_bytes(0, variable_bytes() + CONTROL_BYTES);
        if let Some(template) = TEMPLATE.get() {
            let image = core::ptr::with_exposed_provenance::<u8>(template.start as usize);
            block.copy_from_nonoverlapping(image, template.filesz as usize);
        }
        core::ptr::with_exposed_provenance_mut::<u64>(pointer).write(pointer as u64);
    }
    pointer as u64
}
