//! New threads must find clean registers, whatever was in them. std's own start would use some before it calls
//! anything, so these threads are created by the system call.

use crate::hold::{FirstLook, first_look};
use crate::state::{State, Width};

/// std's priority of threads.
const PRIORITY: u8 = 2;
const STACK_BYTES: usize = 64 << 10;
/// Offset of the tag word in the x87 environment, and its value while the stack is empty.
const TAGS_OFFSET: usize = 8;
const TAGS_EMPTY: [u8; 2] = [0xff, 0xff];

// SAFETY: these are the signatures of Hermit's interface.
unsafe extern "C" {
    safe fn sys_spawn2(
        function: extern "C" fn(usize),
        argument: usize,
        priority: u8,
        stack_bytes: usize,
        core: isize,
    ) -> u32;
    safe fn sys_join(thread: u32) -> i32;
}

/// Starts one thread on each CPU and checks what they find in their registers.
pub(crate) fn one_on_each_cpu(width: Width, cpus: usize) -> Result<(), String> {
    let unlike = FirstLook {
        // What a thread does not fill in is found.
        found: State::pattern(u64::from(u32::MAX), 0),
        x87_environment: [0; 28],
    };
    let mut looks: Vec<_> = std::iter::repeat_with(|| Box::new(FirstLook { ..unlike }))
        .take(cpus)
        .collect();
    let mut threads = Vec::new();
    for (cpu, look) in looks.iter_mut().enumerate() {
        let argument = std::ptr::from_mut::<FirstLook>(look).expose_provenance();
        let core = cpu as isize;
        match sys_spawn2(first_look(width), argument, PRIORITY, STACK_BYTES, core) {
            0 => return Err(format!("a thread on CPU {cpu} cannot be created")),
            thread => threads.push(thread),
        }
    }
    for &thread in &threads {
        sys_join(thread);
    }
    for (cpu, look) in looks.iter().enumerate() {
        check(look, width).map_err(|reason| format!("a new thread on CPU {cpu}: {reason}"))?;
    }
    Ok(())
}

fn check(look: &FirstLook, width: Width) -> Result<(), String> {
    let clean = State::clean();
    // The x87 stack is looked at by its tags: storing an empty register gives no number.
    let found = State {
        x87: clean.x87,
        ..look.found
    };
    found.check(&clean, width)?;
    let tags = &look.x87_environment[TAGS_OFFSET..TAGS_OFFSET + 2];
    if tags != TAGS_EMPTY {
        return Err(format!(
            "the x87 stack is not empty: its tags are {tags:02x?}"
        ));
    }
    Ok(())
}
