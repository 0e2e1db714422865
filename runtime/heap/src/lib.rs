//! Dolmen's allocator: behind `sys_malloc` and its relatives, and behind the kernel's own
//! `GlobalAlloc`.
//!
//! # Structure
//!
//! A [`Heap`] maps *chunks* (2 MiB) from its [`Backing`]. A chunk belongs to the CPU that mapped
//! it and is cut into *spans* of 32, 128 or 512 KiB, each of which holds blocks of one size class.
//! Allocating takes a block from the CPU's current span of the class: a few instructions with
//! preemption off, no lock, no atomic operation. Freed on the owning CPU, a block goes back to its
//! span; freed on another CPU, it is pushed to the span's remote list, one atomic operation, and
//! the owner picks it up when it next runs out of blocks or [collects](Heap::collect). Blocks are
//! cut off a span one by one, so that memory is touched only when it is used.
//!
//! Empty spans return to their chunk, where every class can use them, and empty chunks to the
//! backing. Kept back, per CPU: up to eight empty spans that are current in their class, one empty
//! chunk, and 512 KiB of small mappings. Collecting gives back these as well; the owner's idle
//! loop is the place for it, since what others freed is only seen by its owner.
//!
//! Requests above 32 KiB are mappings of their own.
//!
//! # NUMA
//!
//! A small block lies on a page that the CPU which allocated it touched first, and returns to that
//! CPU whoever frees it: small memory stays local to its allocator. Mappings of 128 KiB and more
//! are never kept: they are unmapped when freed and fresh when allocated, so that their pages lie
//! on the node of whoever touches them first. Mappings between 32 and 128 KiB are kept for a while
//! by the CPU that *freed* them; handed out again they keep their pages, which may lie on the
//! node of an earlier user. [`Heap::allocate_zeroed`] never uses kept mappings.
//!
//! # Why not a crate
//!
//! talc, rlsf, buddy_system_allocator and linked_list_allocator serve without std, but each is one
//! data structure behind one lock (which is what Dolmen is to be better than); snmalloc and
//! mimalloc scale, but are C and C++ on top of an operating system's threads and `mmap`.
#![cfg_attr(not(test), no_std)]

mod chunk;
mod classes;
mod counters;
mod cpu;
mod heap;
mod list;
mod outgoing;
mod slices;
mod span;

pub use counters::Counters;
pub use heap::{Backing, Heap, MAX_CPUS};

/// As large as the unit in which caches fetch pairs of lines: what one CPU writes is kept this far
/// from what others touch.
#[repr(align(128))]
struct Padded<T>(T);

#[cfg(test)]
mod tests;
