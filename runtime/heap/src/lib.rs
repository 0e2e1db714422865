//! The allocator.
#![no_std]
