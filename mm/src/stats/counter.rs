//! What is counted, and what it is called.

use crate::ids::{MAX_NODES, NodeId, PageSize};

/// Defines [`LockClass`]: one line of documentation, the variant, the counter's name.
macro_rules! lock_classes {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal, )*) => {
        /// The locks, and the words taken by compare-exchange, on which processors can meet.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum LockClass {
            $( $(#[$doc])* $variant, )*
        }

        impl LockClass {
            const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }
        }
    };
}

/// Defines [`Counter`]: one line of documentation, the variant, the counter's name.
macro_rules! counters {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal, )*) => {
        /// What is counted. The names are those of Linux's `/proc/vmstat` where it has them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Counter {
            $( $(#[$doc])* $variant, )*
            /// Pages mapped by faults, by size and by the node of the frame: `fault_4k_node0`, ….
            Fault(PageSize, NodeId),
            /// Waits for a lock, or failed compare-exchanges: `lock_wait_page_table`, ….
            LockWait(LockClass),
        }

        /// The positions of the counters without a field.
        enum Position {
            $( $variant, )*
        }

        impl Counter {
            const PLAIN: &'static [Self] = &[ $( Self::$variant, )* ];

            /// The position of the counter in a set.
            pub(super) const fn index(self) -> usize {
                match self {
                    $( Self::$variant => Position::$variant as usize, )*
                    Self::LockWait(class) => Self::PLAIN.len() + class as usize,
                    Self::Fault(size, node) => {
                        FAULTS + size as usize * MAX_NODES + node.index() % MAX_NODES
                    }
                }
            }

            /// The counter's name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                    Self::LockWait(class) => class.name(),
                    Self::Fault(size, node) => {
                        FAULT_NAMES[size as usize][node.index() % MAX_NODES]
                    }
                }
            }
        }
    };
}

lock_classes! {
    /// The lock of a page-table page.
    PageTable = "lock_wait_page_table",
    /// The allocator of virtual addresses.
    Arena = "lock_wait_arena",
    /// A processor's queue of shootdown requests.
    Shootdown = "lock_wait_shootdown",
    /// The entry of a block of frames: a compare-exchange that another processor foiled.
    FrameEntry = "lock_wait_frame_entry",
    /// The map of a block of frames: an atomic operation that got less than it wanted.
    FrameMap = "lock_wait_frame_map",
    /// The hints where to find blocks of frames: another processor changed the same block's.
    FrameHint = "lock_wait_frame_hint",
}

counters! {
    /// Page faults, of whatever outcome.
    PgFault = "pgfault",
    /// Page faults that found their page mapped already.
    PgFaultSpurious = "pgfault_spurious",
    /// 2 MiB pages given to a fault.
    ThpFaultAlloc = "thp_fault_alloc",
    /// Faults that wanted a 2 MiB page and got 4 KiB.
    ThpFaultFallback = "thp_fault_fallback",
    /// 2 MiB mappings split into 4 KiB mappings.
    ThpSplitPmd = "thp_split_pmd",
    /// Frames allocated.
    PgAlloc = "pgalloc",
    /// Frames freed.
    PgFree = "pgfree",
    /// Frame allocations served by the node that was asked.
    NumaHit = "numa_hit",
    /// Frame allocations that fell back to another node.
    NumaMiss = "numa_miss",
    /// Frame allocations that no node could serve.
    AllocFail = "frame_alloc_fail",
    /// Frees that went to a block reserved by another processor.
    RemoteFree = "frame_remote_free",
    /// Blocks reserved by a processor for small orders.
    BlockReserve = "frame_block_reserve",
    /// Allocations served from a block that another processor has reserved.
    BlockSteal = "frame_block_steal",
    /// Frames taken out of another processor's cache because memory was low.
    CacheDrain = "frame_cache_drain",
    /// Barriers on all processors so that caches could be drained.
    CacheFence = "frame_cache_fence",
    /// Shootdowns requested from other processors (interrupts sent).
    TlbRemoteFlush = "nr_tlb_remote_flush",
    /// Shootdowns served for other processors.
    TlbRemoteFlushReceived = "nr_tlb_remote_flush_received",
    /// Flushes of a processor's whole TLB.
    TlbLocalFlushAll = "nr_tlb_local_flush_all",
    /// Flushes of single pages from a processor's own TLB.
    TlbLocalFlushOne = "nr_tlb_local_flush_one",
    /// Pages that requests to other processors asked to flush.
    TlbRemoteFlushPages = "tlb_remote_flush_pages",
    /// Batches of unmapped pages that were flushed.
    TlbBatches = "tlb_batches",
    /// Mappings made.
    Mmap = "mmap_calls",
    /// Ranges unmapped.
    Munmap = "munmap_calls",
    /// Protections changed.
    Mprotect = "mprotect_calls",
    /// Advice given.
    Madvise = "madvise_calls",
    /// Bytes cleared through the cache.
    ClearedBytesCached = "cleared_bytes_cached",
    /// Bytes cleared past the cache.
    ClearedBytesNontemporal = "cleared_bytes_nontemporal",
}

const FAULTS: usize = Counter::PLAIN.len() + LockClass::ALL.len();
const SIZES: [PageSize; 3] = [PageSize::Base, PageSize::Huge, PageSize::Giant];

macro_rules! fault_names {
    ($size:literal: $($node:literal)*) => {
        [$( concat!("fault_", $size, "_node", $node), )*]
    };
}

const FAULT_NAMES: [[&str; MAX_NODES]; SIZES.len()] = [
    fault_names!("4k": 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15),
    fault_names!("2m": 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15),
    fault_names!("1g": 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15),
];

impl Counter {
    /// The number of counters in a set.
    pub(super) const COUNT: usize = FAULTS + SIZES.len() * MAX_NODES;

    /// Whether an interrupt handler may count it while other code on the same processor does.
    pub const fn counted_in_interrupts(self) -> bool {
        matches!(
            self,
            Self::TlbRemoteFlushReceived
                | Self::TlbLocalFlushAll
                | Self::TlbLocalFlushOne
                | Self::LockWait(LockClass::Shootdown)
        )
    }

    /// All counters of a machine with `nodes` nodes, in the order of reports.
    pub fn all(nodes: usize) -> impl Iterator<Item = Self> {
        let faults = SIZES.into_iter().flat_map(move |size| {
            (0..nodes as u8).map(move |node| Self::Fault(size, NodeId::new(node)))
        });
        let locks = LockClass::ALL.iter().map(|&class| Self::LockWait(class));
        Self::PLAIN.iter().copied().chain(faults).chain(locks)
    }
}
