//! Small machines without a runtime: a few instructions behind a multiboot header.
//!
//! They stand in for the loader, to test what the host tool makes of a machine that prints, stops,
//! hangs or breaks, whatever the runtime does.

/// Where the program is loaded.
const BASE: u32 = 0x10_0000;
/// The multiboot header with its address fields.
const HEADER_WORDS: usize = 8;
const MAGIC: u32 = 0x1bad_b002;
/// The header says itself where to load: no ELF file is needed.
const HAS_ADDRESSES: u32 = 1 << 16;

/// Prints the text `esi` points to up to its zero byte on the first serial port.
const PRINT: [u8; 12] = [
    0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
    0xac, // lodsb
    0x84, 0xc0, // test al, al
    0x74, 0x03, // jz behind
    0xee, // out dx, al
    0xeb, 0xf8, // jmp lodsb
];

/// A program for such a machine.
#[derive(Debug, Clone, Default)]
pub struct Program {
    code: Vec<u8>,
    /// Texts, and where in the code their addresses are to be.
    texts: Vec<(usize, Vec<u8>)>,
}

impl Program {
    /// A program that does nothing yet.
    pub fn new() -> Self {
        // mov ebp, ebx: the boot information, which nothing else touches.
        Self {
            code: vec![0x89, 0xdd],
            texts: Vec::new(),
        }
    }

    /// Prints text, in which there is no zero byte.
    #[must_use]
    pub fn print(mut self, text: impl AsRef<[u8]>) -> Self {
        self.code.push(0xbe); // mov esi, address
        self.texts.push((self.code.len(), text.as_ref().to_vec()));
        self.code.extend([0; 4]);
        self.code.extend(PRINT);
        self
    }

    /// Prints the command line the machine was started with.
    #[must_use]
    pub fn print_command_line(mut self) -> Self {
        self.code.extend([0x8b, 0x75, 0x10]); // mov esi, [ebp + 16]
        self.code.extend(PRINT);
        self
    }

    /// Prints a record.
    #[must_use]
    pub fn record(self, json: &str) -> Self {
        self.print(format!("\x1e{json}\n"))
    }

    /// Ends the machine by the debug-exit device.
    #[must_use]
    pub fn exit(mut self, code: u8) -> Self {
        // mov al, code; out 0xf4, al
        self.code.extend([0xb0, code, 0xe6, 0xf4]);
        self
    }

    /// Resets the machine by its keyboard controller.
    #[must_use]
    pub fn reset(mut self) -> Self {
        // mov al, 0xfe; out 0x64, al
        self.code.extend([0xb0, 0xfe, 0xe6, 0x64]);
        self
    }

    /// The bytes to boot. A program that does not end halts for ever.
    pub fn assemble(mut self) -> Vec<u8> {
        // hlt; jmp hlt
        self.code.extend([0xf4, 0xeb, 0xfd]);
        let mut data = Vec::new();
        let code_at = BASE + 4 * HEADER_WORDS as u32;
        let data_at = code_at + self.code.len() as u32;
        for (place, text) in &self.texts {
            let address = data_at + data.len() as u32;
            self.code[*place..place + 4].copy_from_slice(&address.to_le_bytes());
            data.extend(text);
            data.push(0);
        }
        let checksum = 0u32.wrapping_sub(MAGIC).wrapping_sub(HAS_ADDRESSES);
        let header: [u32; HEADER_WORDS] =
            [MAGIC, HAS_ADDRESSES, checksum, BASE, BASE, 0, 0, code_at];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(self.code);
        bytes.extend(data);
        bytes
    }
}
