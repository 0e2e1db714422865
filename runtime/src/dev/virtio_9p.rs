//! Shares of the host: virtio devices that carry 9P messages.
//!
//! `virtio-drivers` has a driver for them that spins until the answer comes. This one gives the
//! processor to other threads meanwhile, since the host may take its time, and never interrupts.

use alloc::alloc::{alloc_zeroed, dealloc};
use alloc::string::String;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

use dolmen_ninep::Transport as Messages;
use virtio_drivers::device::common::Feature;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::bus::PciRoot;
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use super::pci::{self, Ports};
use crate::mem::direct;
use crate::sched;

/// The device's only queue, and its descriptors: one for a request and one for its reply.
const QUEUE: u16 = 0;
const DESCRIPTORS: usize = 2;

/// How often an answer is looked for before the processor goes to another thread.
const LOOKS: u32 = 100;

/// A share.
pub(crate) struct Device {
    transport: PciTransport,
    queue: VirtQueue<Memory, DESCRIPTORS>,
    broken: bool,
}

/// The devices whose tags are among `tags`, each with its tag. The others are left alone.
pub(crate) fn find(tags: &[&str]) -> Vec<(String, Device)> {
    let is_share = |info: &_| virtio_device_type(info) == Some(DeviceType::_9P);
    pci::find(is_share)
        .filter_map(|function| {
            let transport =
                PciTransport::new::<Memory, _>(&mut PciRoot::new(Ports), function).ok()?;
            let tag = tag(&transport)?;
            tags.contains(&&*tag)
                .then(|| Some((tag, Device::new(transport)?)))?
        })
        .collect()
}

/// The name that the host gave to a share.
fn tag(transport: &PciTransport) -> Option<String> {
    let length: u16 = transport.read_config_space(0).ok()?;
    let bytes = (0..usize::from(length)).map(|at| transport.read_config_space(2 + at).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

impl Device {
    fn new(mut transport: PciTransport) -> Option<Self> {
        let features = transport.begin_init(Feature::VERSION_1);
        if !features.contains(Feature::VERSION_1)
            || !transport.get_status().contains(DeviceStatus::FEATURES_OK)
        {
            return None;
        }
        let mut queue = VirtQueue::new(&mut transport, QUEUE, false, false).ok()?;
        queue.set_dev_notify(false);
        transport.finish_init();
        Some(Self {
            transport,
            queue,
            broken: false,
        })
    }

    /// Waits for an answer; false if the device says that it will give none.
    fn wait(&self) -> bool {
        loop {
            for _ in 0..LOOKS {
                if self.queue.can_pop() {
                    return true;
                }
                core::hint::spin_loop();
            }
            let status = self.transport.get_status();
            if status.contains(DeviceStatus::DEVICE_NEEDS_RESET) {
                return false;
            }
            sched::yield_now();
        }
    }

    /// Takes everything out of the device's hands, for ever.
    fn give_up(&mut self) {
        self.broken = true;
        self.transport.set_status(DeviceStatus::empty());
        while self.transport.get_status() != DeviceStatus::empty() {
            core::hint::spin_loop();
        }
    }
}

impl Messages for Device {
    fn exchange(&mut self, request: &[u8], reply: &mut [u8]) -> Option<usize> {
        if self.broken {
            return None;
        }
        // SAFETY: the call does not come back before the device has given both buffers back, or
        // has been reset and uses no memory any more; nobody else has them meanwhile.
        let token = unsafe { self.queue.add(&[request], &mut [reply]) }.ok()?;
        if self.queue.should_notify() {
            self.transport.notify(QUEUE);
        }
        let used = self.wait().then(|| {
            // SAFETY: the buffers are those of `token`.
            unsafe { self.queue.pop_used(token, &[request], &mut [reply]) }.ok()
        });
        let used = used.flatten();
        if used.is_none() {
            self.give_up();
        }
        used.map(|bytes| bytes as usize)
    }
}

/// Memory that the device uses: the kernel's heap, of which every piece is a run of frames, or a
/// part of one, in the direct map.
struct Memory;

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).expect("a queue takes a few pages")
}

fn physical(start: NonNull<u8>) -> PhysAddr {
    start.addr().get() as u64 - direct::BASE
}

// SAFETY: pieces of the kernel's heap are the caller's alone, and in one piece in physical memory;
// device registers are mapped where the direct map has them, for ever.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: a queue takes at least one page.
        match NonNull::new(unsafe { alloc_zeroed(layout(pages)) }) {
            Some(start) => (physical(start), start),
            // Nothing is at physical address 0, which stands for failure.
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_: PhysAddr, start: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: by the contract it comes from `dma_alloc`, with as many pages.
        unsafe { dealloc(start.as_ptr(), layout(pages)) };
        0
    }

    unsafe fn mmio_phys_to_virt(start: PhysAddr, bytes: usize) -> NonNull<u8> {
        let address = direct::map_device(start, bytes as u64) as usize;
        NonNull::new(core::ptr::with_exposed_provenance_mut(address))
            .expect("the direct map is in the upper half")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        physical(buffer.cast())
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
