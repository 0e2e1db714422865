//! Little-endian integers at an offset inside bytes.

/// Fields of a structure that may be cut off.
pub trait Fields {
    /// The `N` bytes at `offset`, or `None` if they are not all there.
    fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// The byte at `offset`.
    fn u8(&self, offset: usize) -> Option<u8> {
        self.field(offset).map(u8::from_le_bytes)
    }

    /// The 16-bit integer at `offset`.
    fn u16(&self, offset: usize) -> Option<u16> {
        self.field(offset).map(u16::from_le_bytes)
    }

    /// The 32-bit integer at `offset`.
    fn u32(&self, offset: usize) -> Option<u32> {
        self.field(offset).map(u32::from_le_bytes)
    }

    /// The 64-bit integer at `offset`.
    fn u64(&self, offset: usize) -> Option<u64> {
        self.field(offset).map(u64::from_le_bytes)
    }
}

impl Fields for [u8] {
    fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}
