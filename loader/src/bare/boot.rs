//! The steps from the boot loader's information to the application's first instruction.

use alloc::format;
use alloc::string::{String, ToString};
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::{self, MaybeUninit};
use core::num::{NonZeroU16, NonZeroU64};

use dolmen_firmware::PhysicalMemory;
use dolmen_firmware::acpi::{self, Acpi};
use dolmen_firmware::ranges::Range;
use dolmen_loader::elf;
use dolmen_loader::gzip::Gzip;
use dolmen_loader::image::{Image, Kind};
use dolmen_loader::layout::{IMAGE_ALIGN, Layout};
use dolmen_loader::multiboot::Multiboot;
use dolmen_loader::tree::Tree;
use hermit_entry::boot_info::{BootInfo, HardwareInfo, PlatformInfo, RawBootInfo};
use hermit_entry::elf::{KernelObject, LoadedKernel};

use super::memory::{self, Identity};
use super::{console, entry, fail, paging};

/// What the application's entry point gets. It stays in the part of the loader that is kept.
struct Information(UnsafeCell<MaybeUninit<RawBootInfo>>);

// SAFETY: Written once, by the only processor that runs, before anybody reads it.
unsafe impl Sync for Information {}

static INFORMATION: Information = Information(UnsafeCell::new(MaybeUninit::uninit()));

/// What the image is made of once it is unpacked.
struct Unpacked<'a> {
    elf: &'a [u8],
    archive: Option<Range>,
    boot_args: String,
}

/// Boots the first module; ends the run with a sentence if that is impossible.
pub(super) fn boot(information: u64) -> ! {
    match prepare(information) {
        // SAFETY: The application was loaded, and what the information refers to is kept.
        Ok((entry_point, information)) => unsafe { entry::enter(entry_point, information) },
        Err(why) => fail(format_args!("{why}")),
    }
}

/// A sentence.
fn sentence(error: impl fmt::Display) -> String {
    error.to_string()
}

fn prepare(information: u64) -> Result<(u64, &'static RawBootInfo), String> {
    let low = Identity {
        end: paging::FIRST_END,
    };
    let multiboot = Multiboot::read(&low, information).map_err(sentence)?;

    let (whole_loader, kept_loader) = memory::loader();
    let mut layout = Layout::new(&multiboot.usable);
    layout.keep(kept_loader);
    layout.avoid(whole_loader);
    for &range in multiboot.occupied.iter().chain(&multiboot.modules) {
        layout.avoid(range);
    }
    // The application gets the address of the information structure.
    if let Some(&structure) = multiboot.occupied.first() {
        layout.keep(structure);
    }
    let top = multiboot.usable.as_slice().last().map_or(0, |r| r.end);
    let end = paging::extend(top, &mut layout).map_err(sentence)?;
    let memory = Identity { end };
    let rsdp = acpi::find_rsdp(&memory);

    let &module = multiboot
        .modules
        .first()
        .ok_or("there is no application: the boot loader has loaded no module")?;
    let image = unpack(&memory, module, &multiboot, rsdp, &mut layout)?;
    let loaded = load(image.elf, &mut layout)?;
    let (tree, boot_args) = write_tree(&image, rsdp, &mut layout)?;

    let serial_port_base = NonZeroU16::new(console::PORT);
    let multiboot_info_addr =
        NonZeroU64::new(information).ok_or("the boot loader's information is at address 0")?;
    let boot_info = BootInfo {
        hardware_info: HardwareInfo {
            phys_addr_range: 0..0,
            serial_port_base,
            device_tree: NonZeroU64::new(tree.start),
        },
        load_info: loaded.load_info,
        platform_info: PlatformInfo::Multiboot {
            command_line: Some(boot_args),
            multiboot_info_addr,
        },
    };
    // SAFETY: This is the only reference ever made to the content.
    let place = unsafe { &mut *INFORMATION.0.get() };
    Ok((loaded.entry_point, place.write(boot_info.into())))
}

/// Unpacks the module if it is an image, and sees what it asks for.
fn unpack<'a>(
    memory: &'a Identity,
    module: Range,
    multiboot: &Multiboot,
    rsdp: Option<u64>,
    layout: &mut Layout,
) -> Result<Unpacked<'a>, String> {
    let bytes = memory
        .read(module.start, module.bytes() as usize)
        .ok_or("the first module lies outside of the memory")?;
    let (archive, tar) = match Kind::of(bytes).map_err(sentence)? {
        Kind::Elf => {
            return Ok(Unpacked {
                elf: bytes,
                archive: None,
                boot_args: multiboot.command_line.clone(),
            });
        }
        Kind::Tar => {
            layout.keep(module);
            (module, bytes)
        }
        Kind::Gzip => {
            let gzip = Gzip::parse(bytes).map_err(sentence)?;
            let place = layout
                .place("the unpacked image", gzip.unpacked_bytes() as u64, 4096)
                .map_err(sentence)?;
            let out = memory::clear(&place);
            gzip.unpack(out).map_err(sentence)?;
            (place.range(), &*out)
        }
    };
    let image = Image::read(tar).map_err(sentence)?;
    let cpus = rsdp
        .and_then(|rsdp| Acpi::parse(memory, rsdp).ok())
        .map(|acpi| acpi.cpus.iter().filter(|cpu| cpu.enabled).count());
    image.check(layout.usable(), cpus).map_err(sentence)?;
    Ok(Unpacked {
        elf: image.elf,
        archive: Some(archive),
        boot_args: image.boot_args(&multiboot.command_line).map_err(sentence)?,
    })
}

/// Loads the application to where it belongs.
fn load(file: &[u8], layout: &mut Layout) -> Result<LoadedKernel, String> {
    const WHAT: &str = "the application";
    if !file.as_ptr().addr().is_multiple_of(8) {
        return Err("the boot loader has placed the first module at an odd address".into());
    }
    let checked = elf::check(file).map_err(sentence)?;
    let place = match checked.start {
        Some(start) => layout.place_at(WHAT, start, checked.bytes),
        None => layout.place(WHAT, checked.bytes, IMAGE_ALIGN),
    }
    .map_err(sentence)?;
    let object = KernelObject::parse(file).map_err(sentence)?;
    let memory = memory::clear(&place);
    // SAFETY: Initialised bytes are also possibly uninitialised bytes; `load_kernel` writes only
    // initialised ones, and the slice is not used as bytes again.
    let memory = unsafe { mem::transmute::<&mut [u8], &mut [MaybeUninit<u8>]>(memory) };
    Ok(object.load_kernel(memory, place.range().start))
}

/// Writes the device tree, and behind it the boot arguments. Returns where the tree is.
fn write_tree(
    image: &Unpacked<'_>,
    rsdp: Option<u64>,
    layout: &mut Layout,
) -> Result<(Range, &'static str), String> {
    /// Placing the tree can add an entry to the list of what is kept.
    const ENTRY_BYTES: usize = 16;
    let write = |layout: &Layout| {
        let tree = Tree {
            memory: layout.usable(),
            kept: layout.kept(),
            boot_args: &image.boot_args,
            archive: image.archive,
            rsdp,
        };
        tree.write()
            .map_err(|e| format!("no device tree can be made: {e}"))
    };
    let room = write(layout)?.len() + ENTRY_BYTES;
    let bytes = room + image.boot_args.len();
    let place = layout
        .place("the device tree", bytes as u64, 4096)
        .map_err(sentence)?;
    let tree = write(layout)?;

    let (for_tree, for_args) = memory::clear(&place).split_at_mut(room);
    for_tree
        .get_mut(..tree.len())
        .ok_or("the device tree has grown while it was written")?
        .copy_from_slice(&tree);
    for_args.copy_from_slice(image.boot_args.as_bytes());
    let boot_args = core::str::from_utf8(for_args).map_err(sentence)?;
    Ok((
        Range::with_len(place.range().start, tree.len() as u64),
        boot_args,
    ))
}
