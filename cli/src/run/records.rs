//! Picks records out of a console stream.
//!
//! A record is the byte 0x1e, one JSON object and a newline (RFC 7464). A read may end anywhere,
//! inside a record too, so what is unfinished is kept for the next one.

use serde_json::{Map, Value};

/// The byte that starts a record.
const START: u8 = 0x1e;

/// A record longer than this is none: text that happens to contain the byte must not be held back
/// for ever.
const LONGEST: usize = 1 << 20;

/// Splits a stream into text and records.
#[derive(Debug, Default)]
pub struct Filter {
    /// A record that has begun, without its first byte.
    record: Option<Vec<u8>>,
}

impl Filter {
    /// Takes the next piece of the stream; text goes to `text`, records are returned.
    pub fn feed(&mut self, bytes: &[u8], text: &mut Vec<u8>) -> Vec<Map<String, Value>> {
        let mut records = Vec::new();
        for &byte in bytes {
            match &mut self.record {
                None if byte == START => self.record = Some(Vec::new()),
                None => text.push(byte),
                Some(record) if byte == b'\n' => {
                    match serde_json::from_slice(record) {
                        Ok(Value::Object(object)) if object.contains_key("dolmen") => {
                            records.push(object);
                        }
                        _ => {
                            text.append(record);
                            text.push(b'\n');
                        }
                    }
                    self.record = None;
                }
                Some(record) => {
                    record.push(byte);
                    if record.len() > LONGEST {
                        text.append(record);
                        self.record = None;
                    }
                }
            }
        }
        records
    }

    /// The stream has ended: what looked like a record was none.
    pub fn finish(&mut self, text: &mut Vec<u8>) {
        if let Some(mut record) = self.record.take() {
            text.append(&mut record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"one\n\x1e{\"dolmen\":\"app\",\"report\":{\"a\":1}}\ntwo\x1e{\"dolmen\":\"exit\",\"status\":3}\r\nthree";

    fn split(pieces: impl Iterator<Item = Vec<u8>>) -> (String, Vec<Map<String, Value>>) {
        let mut filter = Filter::default();
        let mut text = Vec::new();
        let mut records = Vec::new();
        for piece in pieces {
            records.extend(filter.feed(&piece, &mut text));
        }
        filter.finish(&mut text);
        (String::from_utf8(text).unwrap(), records)
    }

    #[test]
    fn records_are_found_wherever_the_reads_end() {
        for size in 1..=STREAM.len() {
            let (text, records) = split(STREAM.chunks(size).map(<[u8]>::to_vec));
            assert_eq!(text, "one\ntwothree", "reads of {size}");
            assert_eq!(records.len(), 2, "reads of {size}");
            assert_eq!(records[0]["report"]["a"], 1);
            assert_eq!(records[1]["status"], 3);
        }
    }

    #[test]
    fn what_is_no_record_stays_text() {
        let (text, records) =
            split([b"a\x1enot json\nb\x1e{\"other\":1}\nc\x1e{\"dolmen\":".to_vec()].into_iter());
        assert_eq!(text, "anot json\nb{\"other\":1}\nc{\"dolmen\":");
        assert!(records.is_empty());
    }

    #[test]
    fn endless_records_are_let_through() {
        let mut stream = vec![START];
        stream.resize(LONGEST + 10, b'x');
        let mut filter = Filter::default();
        let mut text = Vec::new();
        filter.feed(&stream, &mut text);
        assert!(text.len() > LONGEST);
    }
}
