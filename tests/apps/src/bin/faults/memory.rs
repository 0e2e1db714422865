//! Memory: fresh pages are zero, granted memory is there, and nobody gets somebody else's.

use dolmen::PAGE_BYTES;
use std::sync::mpsc;
use std::thread;

fn write_each_page(memory: &mut [u8]) {
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
}

/// Takes `bytes` of zeroed memory, checks that it is zero and writes to each page.
pub(crate) fn touch(bytes: usize) -> Result<(), String> {
    let mut block = dolmen::try_zeroed::<u8>(bytes).ok_or("there is not enough memory")?;
    let before = dolmen::counters();
    write_each_page(&mut block);
    for (number, page) in std::hint::black_box(&block).chunks(PAGE_BYTES).enumerate() {
        if page[0] != 1 || page[1..].iter().any(|&byte| byte != 0) {
            return Err(format!("page {number} is not as it was left"));
        }
    }
    let after = dolmen::counters();
    dolmen::report_value("touched_bytes", bytes);
    let grown: std::collections::BTreeMap<&String, u64> = after
        .iter()
        .filter_map(|(name, now)| {
            let now = now.as_u64()?;
            let then = before.get(name).and_then(|then| then.as_u64()).unwrap_or(0);
            (now > then).then(|| (name, now - then))
        })
        .collect();
    dolmen::report_value("touch_counters", &grown);
    println!("ok touched {bytes} bytes");
    Ok(())
}

/// Takes memory until there is none, using all that it was given; then gives it back and takes some again.
pub(crate) fn oom(limit: usize) -> Result<(), String> {
    const BLOCK: usize = 1 << 20;
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(1 << 16);
    while blocks.len() < blocks.capacity() {
        let mut block = Vec::new();
        if block.try_reserve_exact(BLOCK).is_err() {
            break;
        }
        block.resize(BLOCK, blocks.len() as u8);
        blocks.push(block);
        if blocks.len() * BLOCK > limit {
            return Err(format!("more than {limit} bytes were granted"));
        }
    }
    for (number, block) in blocks.iter().enumerate() {
        if block.iter().any(|&byte| byte != number as u8) {
            return Err(format!("block {number} is not as it was left"));
        }
    }
    let granted = blocks.len();
    if granted == 0 {
        return Err("not a single MiB was granted".into());
    }
    drop(blocks);
    let mut again = Vec::<u8>::new();
    again
        .try_reserve_exact(BLOCK)
        .map_err(|_| "what was freed cannot be had again")?;
    again.resize(BLOCK, 1);
    println!("ok out of memory after {granted} MiB");
    dolmen::report_value("granted_bytes", granted * BLOCK);
    Ok(())
}

/// Sizes that fall on both sides of the allocator's and of the huge page's threshold.
const SIZES: [usize; 7] = [64, 4096, 40_000, 131_072, 200_000, 1 << 20, 5 << 20];

/// The eight bytes at `at` of the block `serial` of thread `owner`.
fn pattern(owner: usize, serial: usize, at: usize) -> u64 {
    ((owner as u64) << 48) ^ ((serial as u64) << 32) ^ at as u64
}

/// Threads take zeroed blocks, fill each with a pattern of its own and hand every second one to their neighbour, who
/// checks and frees it; the others they check and free themselves.
pub(crate) fn churn(rounds: usize, threads: usize) -> Result<(), String> {
    type Block = (usize, usize, Vec<u64>);
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        (0..threads).map(|_| mpsc::channel::<Block>()).unzip();
    // Thread t sends to thread t + 1.
    senders.rotate_left(1 % threads);
    let workers: Vec<_> = senders
        .into_iter()
        .zip(receivers)
        .enumerate()
        .map(|(owner, (sender, receiver))| {
            thread::spawn(move || -> Result<usize, String> {
                let mut kept: Vec<Block> = Vec::new();
                let mut bytes = 0;
                for serial in 0..rounds {
                    let len = SIZES[(serial * 5 + owner * 3) % SIZES.len()] / 8;
                    let mut block =
                        dolmen::try_zeroed::<u64>(len).ok_or("there is not enough memory")?;
                    if let Some(at) = block.iter().position(|&word| word != 0) {
                        return Err(format!(
                            "word {at} of a fresh block of {len} is {:#x}",
                            block[at]
                        ));
                    }
                    for (at, word) in block.iter_mut().enumerate() {
                        *word = pattern(owner, serial, at);
                    }
                    bytes += 8 * len;
                    if serial % 2 == 0 {
                        // A neighbour that has failed says so itself.
                        let _ = sender.send((owner, serial, block));
                    } else {
                        kept.push((owner, serial, block));
                    }
                    if kept.len() > 3 {
                        check(kept.remove(0))?;
                    }
                    receiver.try_iter().try_for_each(check)?;
                }
                drop(sender);
                kept.into_iter().try_for_each(check)?;
                receiver.iter().try_for_each(check)?;
                Ok(bytes)
            })
        })
        .collect();
    let mut bytes = 0;
    for worker in workers {
        bytes += worker.join().map_err(|_| "a thread panicked")??;
    }
    println!("ok churned {bytes} bytes with {threads} threads");
    dolmen::report_value("churned_bytes", bytes);
    Ok(())
}

fn check((owner, serial, block): (usize, usize, Vec<u64>)) -> Result<(), String> {
    match (0..block.len()).find(|&at| block[at] != pattern(owner, serial, at)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "word {at} of block {serial} of thread {owner} is {:#x}",
            block[at]
        )),
    }
}

/// The loop of will-it-scale's page_fault1: each task maps memory, writes to each of its pages, and
/// unmaps it, again and again.
pub(crate) fn page_fault1(rounds: usize, tasks: usize, bytes: usize) -> Result<(), String> {
    let work = || -> Result<(), String> {
        for _ in 0..rounds {
            let mut memory = dolmen::try_zeroed::<u8>(bytes).ok_or("there is not enough memory")?;
            write_each_page(&mut memory);
            std::hint::black_box(&memory);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let tasks: Vec<_> = (0..tasks).map(|_| scope.spawn(work)).collect();
        let mut ends = tasks.into_iter().map(|task| task.join());
        ends.try_for_each(|end| end.map_err(|_| "a task has panicked")?)
    })?;
    println!("ok {tasks} tasks have faulted {rounds} times in {bytes} bytes");
    Ok(())
}
