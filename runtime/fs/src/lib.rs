//! A read-only file tree over a tar archive in memory.
#![no_std]
