use alloc::vec;
use alloc::vec::Vec;

use super::{Extent, Store, Strategy};
use crate::ids::{HUGE_BYTES, PAGE_BYTES};

fn plan(bytes: usize, touched: usize) -> Vec<Extent> {
    Strategy::DEFAULT.plan(bytes, touched).collect()
}

#[test]
fn every_byte_is_cleared_exactly_once_and_the_neighbourhood_last() {
    for order in 0..=9 {
        let bytes = PAGE_BYTES << order;
        for touched in [0, 1, bytes / 3, bytes / 2, bytes - 4096, bytes - 1] {
            let extents = plan(bytes, touched);
            let mut times = vec![0u8; bytes];
            for extent in &extents {
                times[extent.bytes.clone()].iter_mut().for_each(|n| *n += 1);
            }
            assert!(times.iter().all(|&n| n == 1), "{bytes} {touched}");
            let last = extents.last().unwrap();
            assert!(last.bytes.contains(&touched), "{bytes} {touched}");
            assert_eq!(last.store, Store::Cached);
        }
    }
}

#[test]
fn only_large_runs_go_past_the_cache() {
    let nontemporal = |bytes| {
        plan(bytes, 0)
            .iter()
            .filter(|extent| extent.store == Store::NonTemporal)
            .map(|extent| extent.bytes.len())
            .sum::<usize>()
    };
    assert_eq!(nontemporal(PAGE_BYTES), 0);
    assert_eq!(nontemporal(128 << 10), 0);
    assert_eq!(nontemporal(256 << 10), (256 << 10) - (16 << 10));
    assert_eq!(nontemporal(HUGE_BYTES), HUGE_BYTES - (16 << 10));
}

#[test]
fn the_far_parts_are_two_long_runs() {
    let neighbourhood = 1 << 20..(1 << 20) + (16 << 10);
    let extents = plan(HUGE_BYTES, (1 << 20) + 5000);
    let ranges: Vec<_> = extents.into_iter().map(|extent| extent.bytes).collect();
    assert_eq!(
        ranges,
        [
            0..neighbourhood.start,
            neighbourhood.end..HUGE_BYTES,
            neighbourhood
        ]
    );
}

#[test]
fn a_touch_outside_the_run_still_clears_all_of_it() {
    let extents = plan(PAGE_BYTES, 1 << 30);
    assert_eq!(
        extents,
        [Extent {
            bytes: 0..PAGE_BYTES,
            store: Store::Cached
        }]
    );
}
