//! The vector state of a thread: a pattern to load, what was found afterwards, and where the two differ.

use std::fmt;

/// Bytes of the widest register, ZMM.
pub(crate) const REGISTER_BYTES: usize = 64;
/// Vector registers of the largest set.
pub(crate) const REGISTERS: usize = 32;
/// Opmask registers of AVX-512.
const OPMASKS: usize = 8;
/// Registers of the x87 stack, and bytes of one in its extended format.
const X87_REGISTERS: usize = 8;
const X87_BYTES: usize = 10;

/// MXCSR of a new thread: round to nearest, all exceptions masked.
pub(crate) const CLEAN_MXCSR: u32 = 0x1f80;
/// x87 control word of a new thread: 64-bit mantissa, round to nearest, all exceptions masked.
pub(crate) const CLEAN_X87_CONTROL: u16 = 0x037f;

/// Registers of a kind, which every x86-64 processor has or says that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// XMM0 to XMM15.
    Sse,
    /// YMM0 to YMM15.
    Avx,
    /// ZMM0 to ZMM31, and the opmasks with 64 bits.
    Avx512,
}

impl Width {
    /// The widest that processor and operating system both offer.
    pub(crate) fn widest() -> Self {
        if is_x86_feature_detected!("avx512bw") {
            Self::Avx512
        } else if is_x86_feature_detected!("avx") {
            Self::Avx
        } else {
            Self::Sse
        }
    }

    /// The name of the registers.
    fn name(self) -> &'static str {
        match self {
            Self::Sse => "xmm",
            Self::Avx => "ymm",
            Self::Avx512 => "zmm",
        }
    }

    /// How many registers there are.
    pub(crate) fn registers(self) -> usize {
        match self {
            Self::Sse | Self::Avx => 16,
            Self::Avx512 => 32,
        }
    }

    /// Bytes of each.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Sse => 16,
            Self::Avx => 32,
            Self::Avx512 => 64,
        }
    }

    fn opmasks(self) -> usize {
        match self {
            Self::Sse | Self::Avx => 0,
            Self::Avx512 => OPMASKS,
        }
    }
}

/// The contents of all registers. Assembly reads and writes it by the fields' offsets.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct State {
    pub(crate) vectors: [[u8; REGISTER_BYTES]; REGISTERS],
    pub(crate) opmasks: [u64; OPMASKS],
    /// The x87 stack from its top, ten bytes of each entry.
    pub(crate) x87: [[u8; 16]; X87_REGISTERS],
    pub(crate) mxcsr: u32,
    pub(crate) x87_control: u16,
}

impl State {
    /// A processor's state after power-up, as far as a new thread sees it.
    pub(crate) const fn clean() -> Self {
        Self {
            vectors: [[0; REGISTER_BYTES]; REGISTERS],
            opmasks: [0; OPMASKS],
            x87: [[0; 16]; X87_REGISTERS],
            mxcsr: CLEAN_MXCSR,
            x87_control: CLEAN_X87_CONTROL,
        }
    }

    /// A state that no other thread has in this round.
    pub(crate) fn pattern(thread: u64, round: u64) -> Self {
        let mut bytes = Bytes((thread + 1) << 32 | round);
        let mut state = Self::clean();
        for register in &mut state.vectors {
            register.fill_with(|| bytes.next());
        }
        for mask in &mut state.opmasks {
            *mask = u64::from_le_bytes(std::array::from_fn(|_| bytes.next()));
        }
        for register in &mut state.x87 {
            register[..X87_BYTES].fill_with(|| bytes.next());
            // A normal number, which loading and storing leaves as it is.
            register[7] |= 0x80;
            register[9] = register[9] & 0x80 | 0x3f;
        }
        let (rounding, masked) = control(thread, round);
        state.mxcsr = masked << 7 | rounding << 13;
        state.x87_control = (masked | 1 << 6 | 3 << 8 | rounding << 10) as u16;
        state
    }

    /// With all floating-point exceptions masked.
    pub(crate) fn masked(self) -> Self {
        Self {
            mxcsr: self.mxcsr | CLEAN_MXCSR,
            x87_control: self.x87_control | 0x3f,
            ..self
        }
    }

    /// The first difference of `self`, what was found, from what had to be there.
    pub(crate) fn check(&self, expected: &Self, width: Width) -> Result<(), String> {
        let differ = |name: &str, found: &dyn fmt::Display, expected: &dyn fmt::Display| {
            Err(format!("{name} is {found}, not {expected}"))
        };
        let used = width.bytes();
        for (at, (found, expected)) in self.vectors.iter().zip(&expected.vectors).enumerate() {
            if at < width.registers() && found[..used] != expected[..used] {
                let name = format!("{}{at}", width.name());
                return differ(&name, &Hex(&found[..used]), &Hex(&expected[..used]));
            }
        }
        for (at, (found, expected)) in self.opmasks.iter().zip(&expected.opmasks).enumerate() {
            if at < width.opmasks() && found != expected {
                let (found, expected) = (found.to_be_bytes(), expected.to_be_bytes());
                return differ(&format!("k{at}"), &Hex(&found), &Hex(&expected));
            }
        }
        for (at, (found, expected)) in self.x87.iter().zip(&expected.x87).enumerate() {
            if found[..X87_BYTES] != expected[..X87_BYTES] {
                let (found, expected) = (Hex(&found[..X87_BYTES]), Hex(&expected[..X87_BYTES]));
                return differ(&format!("st({at})"), &found, &expected);
            }
        }
        self.check_control(expected)
    }

    /// As [`State::check`], of the control words alone.
    pub(crate) fn check_control(&self, expected: &Self) -> Result<(), String> {
        if self.mxcsr != expected.mxcsr {
            let (found, expected) = (self.mxcsr, expected.mxcsr);
            return Err(format!("MXCSR is {found:#06x}, not {expected:#06x}"));
        }
        if self.x87_control != expected.x87_control {
            let (found, expected) = (self.x87_control, expected.x87_control);
            return Err(format!(
                "the x87 control word is {found:#06x}, not {expected:#06x}"
            ));
        }
        Ok(())
    }
}

/// A rounding mode and a set of masked exceptions, six bits, for a thread in a round.
fn control(thread: u64, round: u64) -> (u32, u32) {
    let mixed = thread.wrapping_mul(7) + round;
    ((mixed % 4) as u32, (mixed.wrapping_mul(11) % 64) as u32)
}

/// Bytes in an order that a seed gives.
struct Bytes(u64);

impl Bytes {
    /// The next one: splitmix64's highest.
    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 56) as u8
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
