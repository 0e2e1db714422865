use dolmen_firmware::ranges::Range;

use super::*;

const CONFIG: &str = r#"
version = "1"
kernel = "bin/app"

[input]
kernel_args = ["thp=never", "-freq", "2000"]
app_args = ["--steps", "a b"]
env_vars = ["HOME=/x y", "A=1"]

[requirements]
memory = "64MiB"
cpus = 2
"#;

/// A tar archive of these files.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, content) in files {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(*content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn image_with(config: &str) -> Vec<u8> {
    tar(&[
        ("hermit.toml", config.as_bytes()),
        ("bin/app", b"the application"),
    ])
}

#[test]
fn forms_are_told_apart() {
    assert_eq!(Kind::of(b"\x7fELF\x02"), Ok(Kind::Elf));
    assert_eq!(Kind::of(&[0x1f, 0x8b, 8, 0, 0]), Ok(Kind::Gzip));
    assert_eq!(Kind::of(&image_with(CONFIG)), Ok(Kind::Tar));
    for other in [&b""[..], b"\x7f", b"#!/bin/sh\n", &[0; 1024]] {
        assert_eq!(Kind::of(other), Err(ImageError::Unknown));
    }
}

#[test]
fn the_command_line_overrides_the_image() {
    let tar = image_with(CONFIG);
    let image = Image::read(&tar).unwrap();
    assert_eq!(image.elf, b"the application");
    let args = |line| dolmen_firmware::bootargs::BootArgs::parse(&image.boot_args(line).unwrap());
    let plain = args("").unwrap();
    assert_eq!(plain.app_args, ["--steps", "a b"]);
    assert_eq!(
        plain.env,
        [("HOME".into(), "/x y".into()), ("A".into(), "1".into())]
    );
    assert_eq!(args("report --").unwrap().app_args, plain.app_args);
    let changed = args("thp=always env=A=2 -- -n 'c d'").unwrap();
    assert_eq!(changed.thp.map(|mode| mode.name()), Some("always"));
    assert_eq!(changed.app_args, ["-n", "c d"]);
    assert_eq!(changed.env[1], ("A".into(), "2".into()));
    assert_eq!(
        image.boot_args("report"),
        Ok("'thp=never' -freq 2000 'env=HOME=/x y' 'env=A=1' report -- --steps 'a b'".into())
    );
    assert_eq!(image.boot_args("'"), Err(ArgsError::Unfinished));
}

#[test]
fn requirements_are_compared_with_the_machine() {
    let tar = image_with(CONFIG);
    let image = Image::read(&tar).unwrap();
    // What a PC of 64 MiB has: two holes, and the firmware's tables at the end.
    let machine: RangeSet = [Range::new(0, 0x9_fc00), Range::new(0x10_0000, 0x3fe_0000)]
        .into_iter()
        .collect();
    assert_eq!(image.check(&machine, Some(2)), Ok(()));
    assert_eq!(image.check(&machine, None), Ok(()));
    assert_eq!(
        image.check(&machine, Some(1)).unwrap_err().to_string(),
        "the image requires 2 processors, the machine has 1"
    );
    let small = [Range::new(0x10_0000, 0x200_0000)].into_iter().collect();
    assert_eq!(
        image.check(&small, None).unwrap_err().to_string(),
        "the image requires 64 MiB of memory, the machine has 31 MiB"
    );
}

#[test]
fn bad_images_give_one_line() {
    let sentence = |tar: &[u8]| Image::read(tar).unwrap_err().to_string();
    assert_eq!(
        sentence(&tar(&[("a", b"")])),
        "couldn't find Hermit image configuration file"
    );
    assert_eq!(
        sentence(&tar(&[("hermit.toml", CONFIG.as_bytes())])),
        "couldn't find Hermit kernel in image"
    );
    let config = CONFIG.replace(r#"["--steps", "a b"]"#, "1");
    let bad = sentence(&image_with(&config));
    // Whether the place is named depends on the features of the TOML parser.
    assert!(
        bad.starts_with("Hermit image configuration is invalid: "),
        "{bad}"
    );
    assert!(
        bad.ends_with("invalid type: integer `1`, expected a sequence"),
        "{bad}"
    );
    assert_eq!(bad.lines().count(), 1);
    assert_eq!(sentence(b"junk"), "tar file in Hermit image is corrupt");
    let good = image_with(CONFIG);
    for cut in 0..good.len() - 512 {
        assert!(Image::read(&good[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn changed_images_never_panic() {
    let good = image_with(CONFIG);
    for bit in (0..good.len() * 8).step_by(5) {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(image) = Image::read(&changed) {
            let _ = image.boot_args("-- x");
        }
    }
}
