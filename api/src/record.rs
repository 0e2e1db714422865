//! Records for the host tool: what the application found, and how far it is.
//!
//! A record is one JSON object whose key `dolmen` names its kind. On Dolmen the runtime writes it into the console
//! stream; on Linux it is appended as a line to the file named by the environment variable `DOLMEN_REPORT`. Nobody
//! listening is no error: reports are for tools, results are what the application prints.

use crate::sys;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// At most one progress record in this time, apart from the last.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// Adds the keys of `report` (a map or a struct) to the application's report. A key reported again replaces the old.
///
/// A value that is no map, or that JSON cannot express, is reported under the key `value` or as the error's text.
pub fn report(report: &impl Serialize) {
    let object = match serde_json::to_value(report) {
        Ok(object @ Value::Object(_)) => object,
        Ok(value) => json!({ "value": value }),
        Err(error) => json!({ "report_error": error.to_string() }),
    };
    emit("app", &json!({ "report": object }));
}

/// Adds one key to the application's report.
pub fn report_value(key: &str, value: impl Serialize) {
    report(&std::collections::BTreeMap::from([(key, value)]));
}

/// Says that `done` of `total` units of `what` are done. Cheap enough to call in every step: what comes too early
/// after the last record is dropped, except the last unit.
pub fn progress(done: u64, total: u64, what: &str) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    let Ok(mut last) = LAST.lock() else { return };
    if done < total && last.is_some_and(|at| now.duration_since(at) < PROGRESS_PERIOD) {
        return;
    }
    *last = Some(now);
    drop(last);
    emit(
        "progress",
        &json!({ "done": done, "total": total, "what": what }),
    );
}

/// Sends a record whose keys beside `dolmen` are those of `body`, a JSON object.
fn emit(kind: &str, body: &Value) {
    let text = body.to_string();
    sys::emit(kind, &text[1..text.len() - 1]);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn records_are_lines_of_the_report_file() {
        let path = std::env::temp_dir().join(format!("dolmen-record-{}", std::process::id()));
        // SAFETY: this is the only test of this crate that reads or writes the environment.
        unsafe { std::env::set_var("DOLMEN_REPORT", &path) };
        report(&json!({ "steps": 3 }));
        report_value("name", "a \"b\"\n");
        report(&7);
        progress(1, 9, "step");
        progress(2, 9, "step");
        progress(9, 9, "step");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let records: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            records,
            [
                json!({ "dolmen": "app", "report": { "steps": 3 } }),
                json!({ "dolmen": "app", "report": { "name": "a \"b\"\n" } }),
                json!({ "dolmen": "app", "report": { "value": 7 } }),
                json!({ "dolmen": "progress", "done": 1, "total": 9, "what": "step" }),
                json!({ "dolmen": "progress", "done": 9, "total": 9, "what": "step" }),
            ]
        );
    }
}
