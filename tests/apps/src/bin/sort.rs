//! Sorts integers with rayon and checks the result. Argument: how many (default: 10 million).

use rayon::prelude::*;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: dolmen::GlobalAlloc = dolmen::GlobalAlloc;

/// The `index`-th number of a fixed scrambled sequence.
fn scrambled(index: u64) -> u64 {
    let x = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

fn main() -> ExitCode {
    let count: u64 = match std::env::args().nth(1).as_deref().map(str::parse) {
        None => 10_000_000,
        Some(Ok(count)) => count,
        Some(Err(_)) => {
            eprintln!("sort: the argument must be a number of integers");
            return ExitCode::from(2);
        }
    };
    let mut numbers: Vec<u64> = (0..count).into_par_iter().map(scrambled).collect();
    let fingerprint = |numbers: &[u64]| {
        numbers
            .par_iter()
            .map(|&n| (n, n.wrapping_mul(n | 1)))
            .reduce(
                || (0, 0),
                |a, b| (a.0.wrapping_add(b.0), a.1.wrapping_add(b.1)),
            )
    };
    let before = fingerprint(&numbers);
    let start = Instant::now();
    numbers.par_sort();
    let seconds = start.elapsed().as_secs_f64();
    if !numbers.is_sorted() {
        eprintln!("sort: the numbers are not in order");
        return ExitCode::FAILURE;
    }
    if fingerprint(&numbers) != before || numbers.len() as u64 != count {
        eprintln!("sort: these are not the numbers that were there before");
        return ExitCode::FAILURE;
    }
    let threads = rayon::current_num_threads();
    println!("ok sorted {count} integers with {threads} threads in {seconds:.3} s");
    dolmen::report_value("sort_s", seconds);
    dolmen::report_value("sorted", count);
    ExitCode::SUCCESS
}
