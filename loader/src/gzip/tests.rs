use alloc::vec::Vec;

use miniz_oxide::deflate::compress_to_vec;

use super::*;

fn data() -> Vec<u8> {
    (0..5_000u32)
        .flat_map(|i| (i % 1000 * i / 7).to_le_bytes())
        .collect()
}

/// A gzip file with the header fields that `flags` asks for.
fn gzip(data: &[u8], flags: u8) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 3];
    if flags & HAS_EXTRA != 0 {
        file.extend([3, 0, 1, 2, 3]);
    }
    if flags & HAS_NAME != 0 {
        file.extend(b"name\0");
    }
    if flags & HAS_COMMENT != 0 {
        file.extend(b"\0");
    }
    if flags & HAS_HEADER_CRC != 0 {
        file.extend([0, 0]);
    }
    file.extend(compress_to_vec(data, 6));
    file.extend(crc32fast::hash(data).to_le_bytes());
    file.extend((data.len() as u32).to_le_bytes());
    file
}

fn unpack(file: &[u8]) -> Result<Vec<u8>, GzipError> {
    let gzip = Gzip::parse(file)?;
    // A wrong length asks for up to 4 GiB; there is no need to try that.
    let mut out = vec![0; gzip.unpacked_bytes().min(1 << 20)];
    let verified = gzip.verify();
    let unpacked = gzip.unpack(&mut out);
    assert_eq!(verified.is_ok(), unpacked.is_ok());
    unpacked.map(|()| out)
}

#[test]
fn unpacks_with_every_header() {
    let data = data();
    for flags in 0..32 {
        assert_eq!(unpack(&gzip(&data, flags)).as_ref(), Ok(&data));
    }
    assert_eq!(unpack(&gzip(&[], 0)), Ok(Vec::new()));
}

#[test]
fn cut_off_files_are_refused() {
    let file = gzip(b"a short file, so that every cut can be tried", 31);
    for cut in 0..file.len() {
        assert!(unpack(&file[..cut]).is_err(), "{cut}");
    }
    let file = gzip(&data(), 0);
    let half = Gzip::parse(&file[..file.len() / 2]).unwrap();
    assert_eq!(half.verify(), Err(GzipError::Truncated));
}

#[test]
fn changed_files_are_refused() {
    let data = b"a short file, so that every bit can be changed";
    let file = gzip(data, 0);
    let mut refused = 0;
    for bit in 8 * HEADER_BYTES..file.len() * 8 {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        match unpack(&changed) {
            // Padding bits mean nothing.
            Ok(out) => assert_eq!(out, data),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 8 * data.len() / 2);
    for flag in [0x20, 0x40, 0x80] {
        assert_eq!(
            Gzip::parse(&gzip(b"", flag)).unwrap_err(),
            GzipError::Header
        );
    }
}
