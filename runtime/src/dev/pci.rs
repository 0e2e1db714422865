//! The PCI bus: configuration space, through the ports that every x86 machine with PCI has.

use virtio_drivers::transport::pci::bus::{
    Command, ConfigurationAccess, DeviceFunction, DeviceFunctionInfo, PciRoot,
};
use x86_64::instructions::port::Port;

use crate::sync::SpinLock;

/// The register that chooses a word of configuration space, and the word.
struct Registers {
    address: Port<u32>,
    data: Port<u32>,
}

static REGISTERS: SpinLock<Registers> = SpinLock::new(Registers {
    address: Port::new(0xcf8),
    data: Port::new(0xcfc),
});

/// Bit of the address that makes the access one to configuration space.
const ENABLE: u32 = 1 << 31;

/// Configuration space.
pub(crate) struct Ports;

/// What chooses the word at `offset` of a function's configuration space.
fn address(function: DeviceFunction, offset: u8) -> u32 {
    ENABLE
        | u32::from(function.bus) << 16
        | u32::from(function.device) << 11
        | u32::from(function.function) << 8
        | u32::from(offset & !3)
}

impl ConfigurationAccess for Ports {
    fn read_word(&self, function: DeviceFunction, offset: u8) -> u32 {
        let mut registers = REGISTERS.lock();
        // SAFETY: choosing and reading a word of configuration space changes nothing else. Where
        // there is no such bus or function, it reads as all ones.
        unsafe {
            registers.address.write(address(function, offset));
            registers.data.read()
        }
    }

    fn write_word(&mut self, function: DeviceFunction, offset: u8, data: u32) {
        let mut registers = REGISTERS.lock();
        // SAFETY: only what sets a function up writes here: `find` and the virtio transport, which
        // leave its address ranges where the firmware put them.
        unsafe {
            registers.address.write(address(function, offset));
            registers.data.write(data);
        }
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// The functions of the first bus that `wanted` accepts, able to use memory and kept from
/// interrupting. QEMU's devices are on that bus unless it is told otherwise.
pub(crate) fn find(
    wanted: impl Fn(&DeviceFunctionInfo) -> bool,
) -> impl Iterator<Item = DeviceFunction> {
    let mut root = PciRoot::new(Ports);
    root.enumerate_bus(0)
        .filter(move |(_, info)| wanted(info))
        .map(move |(function, _)| {
            let (_, command) = root.get_status_command(function);
            let needed = Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE;
            root.set_command(function, command | needed);
            function
        })
}
