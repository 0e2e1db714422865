//! What a run leaves behind: the object that `--json` writes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::spec::{Platform, RunSpec};

/// The form of [`RunReport`].
pub const RUN_SCHEMA: &str = "dolmen-run-1";

/// Exit statuses the tool gives where the application has none.
pub mod status {
    /// The run took longer than allowed.
    pub const TIMEOUT: i32 = 124;
    /// The machine stopped without an exit record, or could not be started.
    pub const NO_RECORD: i32 = 125;
    /// The user interrupted the run.
    pub const INTERRUPTED: i32 = 130;
}

/// One finished run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// [`RUN_SCHEMA`].
    pub schema: &'static str,
    /// The application's name.
    pub app: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it ran.
    pub platform: Platform,
    /// Processors.
    pub cpus: u32,
    /// Which processor QEMU was asked to emulate, if that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// NUMA nodes.
    pub nodes: u32,
    /// The machine's memory; absent on Linux.
    pub mem_bytes: Option<u64>,
    /// Huge pages.
    pub thp: &'static str,
    /// Placement.
    pub numa: &'static str,
    /// The application's status, or one of [`status`].
    pub exit_status: i32,
    /// From the start of the main thread to the exit; on Linux, of the process.
    pub wall_s: f64,
    /// From entering the runtime to `main`; absent on Linux.
    pub boot_s: Option<f64>,
    /// CPU time in the application.
    pub user_s: Option<f64>,
    /// CPU time in the memory manager (on Linux, in the kernel).
    pub sys_s: Option<f64>,
    /// The whole run as the host saw it, starting the machine included.
    pub host_wall_s: f64,
    /// The memory manager's counters.
    pub counters: Map<String, Value>,
    /// Memory of each node at exit.
    pub nodes_mem: Vec<Value>,
    /// What the application reported about itself.
    pub app_report: Map<String, Value>,
    /// Where the run was not quite what was asked for.
    pub notes: Vec<String>,
    /// Why the run failed, if the tool knows.
    pub error: Option<String>,
}

impl RunReport {
    /// A report with nothing observed yet.
    pub fn new(app: &str, spec: &RunSpec) -> Self {
        let machine = spec.platform != Platform::Linux;
        Self {
            schema: RUN_SCHEMA,
            app: app.to_owned(),
            args: spec.args.clone(),
            platform: spec.platform,
            cpus: spec.cpus,
            cpu_model: spec.cpu_model.clone().filter(|_| machine),
            nodes: if machine { spec.nodes } else { 1 },
            mem_bytes: machine.then(|| spec.memory()),
            thp: spec.thp.name(),
            numa: spec.numa.name(),
            exit_status: status::NO_RECORD,
            wall_s: 0.0,
            boot_s: None,
            user_s: None,
            sys_s: None,
            host_wall_s: 0.0,
            counters: Map::new(),
            nodes_mem: Vec::new(),
            app_report: Map::new(),
            notes: Vec::new(),
            error: None,
        }
    }

    /// Whether the application ended well.
    pub fn succeeded(&self) -> bool {
        self.exit_status == 0 && self.error.is_none()
    }

    /// The run took longer than `spec` allows.
    pub fn timed_out(&mut self, spec: &RunSpec) {
        let limit = spec.timeout.unwrap_or_default().as_secs_f64();
        self.exit_status = status::TIMEOUT;
        self.error = Some(format!("the run took longer than {limit} s and was ended"));
    }

    /// The user ended the run.
    pub fn interrupted(&mut self) {
        self.exit_status = status::INTERRUPTED;
        self.error = Some("the run was interrupted".to_owned());
    }

    /// The whole run took so long on the host; so did the application, if the machine did not say.
    pub fn host_wall(&mut self, elapsed: Duration) {
        self.host_wall_s = elapsed.as_secs_f64();
        if self.wall_s == 0.0 {
            self.wall_s = self.host_wall_s;
        }
    }

    /// Takes a record of the kinds that both platforms know; says how far a progress record is.
    pub fn take(&mut self, record: Map<String, Value>) -> Option<Step> {
        let kind = record.get("dolmen").and_then(Value::as_str)?;
        match kind {
            "app" => {
                if let Some(Value::Object(report)) = record.get("report") {
                    self.app_report.extend(report.clone());
                }
                None
            }
            "kernel" => {
                self.take_kernel(record);
                None
            }
            "exit" => {
                let code = record.get("status").and_then(Value::as_i64);
                self.exit_status = code.and_then(|c| i32::try_from(c).ok()).unwrap_or(1);
                None
            }
            "progress" => Step::of(&record),
            _ => None,
        }
    }

    fn take_kernel(&mut self, mut record: Map<String, Value>) {
        let seconds = |key: &str| {
            let nanoseconds = record.get(key).and_then(Value::as_f64)?;
            Some(nanoseconds / 1e9)
        };
        self.boot_s = seconds("boot_ns");
        self.user_s = seconds("user_ns");
        self.sys_s = seconds("sys_ns");
        if let Some(wall) = seconds("wall_ns") {
            self.wall_s = wall;
        }
        let number = |key: &str| record.get(key).and_then(Value::as_u64);
        for (key, asked) in [("cpus", self.cpus), ("nodes", self.nodes)] {
            if let Some(seen) = number(key).filter(|&seen| seen != u64::from(asked)) {
                self.notes.push(format!(
                    "the machine was given {asked} {key}, the runtime found {seen}"
                ));
            }
        }
        if let Some(Value::Object(counters)) = record.remove("counters") {
            self.counters = counters;
        }
        if let Some(Value::Array(nodes)) = record.remove("nodes_mem") {
            self.nodes_mem = nodes;
        }
    }

    /// A counter by its name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name)?.as_u64()
    }

    /// The sum of the counters whose names begin with `prefix`, if there are any.
    pub fn counter_sum(&self, prefix: &str) -> Option<u64> {
        self.counters
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .filter_map(|(_, value)| value.as_u64())
            .fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    }

    /// Faults served by 4 KiB pages.
    pub fn faults_4k(&self) -> Option<u64> {
        self.counter_sum("fault_4k_node")
            .or_else(|| self.counter("fault_4k"))
    }

    /// Faults served by 2 MiB pages.
    pub fn faults_2m(&self) -> Option<u64> {
        self.counter_sum("fault_2m_node")
            .or_else(|| self.counter("thp_fault_alloc"))
    }

    /// Interrupts sent to flush the TLBs of other processors.
    pub fn ipis(&self) -> Option<u64> {
        self.counter("nr_tlb_remote_flush")
    }

    /// What the application reported under `key`, as text.
    pub fn app_text(&self, key: &str) -> Option<String> {
        match self.app_report.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// How far the application is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
    /// What a unit is.
    pub what: String,
}

impl Step {
    /// Reads a progress record.
    pub fn of(record: &Map<String, Value>) -> Option<Self> {
        record.get("dolmen").filter(|kind| *kind == "progress")?;
        Some(Self {
            done: record.get("done")?.as_u64()?,
            total: record.get("total")?.as_u64()?,
            what: record
                .get("what")
                .and_then(Value::as_str)
                .unwrap_or("step")
                .to_owned(),
        })
    }
}

/// Writes `value` as readable JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("the report is no JSON")?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn records_fill_the_report() {
        let mut report = RunReport::new("equake", &RunSpec::default());
        assert_eq!(report.exit_status, status::NO_RECORD);
        report.take(record(json!({"dolmen":"app","report":{"a":1,"b":"x"}})));
        report.take(record(json!({"dolmen":"app","report":{"a":2}})));
        let step = report
            .take(record(
                json!({"dolmen":"progress","done":3,"total":9,"what":"step"}),
            ))
            .unwrap();
        assert_eq!((step.done, step.total), (3, 9));
        report.take(record(json!({
            "dolmen":"kernel","cpus":2,"nodes":1,"boot_ns":5_000_000,"wall_ns":2_000_000_000u64,
            "user_ns":1_500_000_000u64,"sys_ns":100,
            "counters":{"fault_4k_node0":5,"fault_4k_node1":6,"thp_fault_alloc":2,"nr_tlb_remote_flush":7},
            "nodes_mem":[{"total_bytes":1,"free_bytes":1}]
        })));
        report.take(record(json!({"dolmen":"exit","status":3})));
        assert_eq!(report.app_text("a").unwrap(), "2");
        assert_eq!(report.app_text("b").unwrap(), "x");
        assert_eq!(report.exit_status, 3);
        assert!(!report.succeeded());
        assert_eq!(report.wall_s, 2.0);
        assert_eq!(report.boot_s, Some(0.005));
        assert_eq!(report.faults_4k(), Some(11));
        assert_eq!(report.faults_2m(), Some(2));
        assert_eq!(report.ipis(), Some(7));
        assert_eq!(report.nodes_mem.len(), 1);
        assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
        assert!(report.notes[0].contains("given 4 cpus"));
    }

    #[test]
    fn odd_records_change_nothing() {
        let mut report = RunReport::new("x", &RunSpec::default());
        for odd in [
            json!({"dolmen":7}),
            json!({"dolmen":"unknown"}),
            json!({"dolmen":"app"}),
            json!({"dolmen":"progress","done":-1,"total":2}),
        ] {
            assert_eq!(report.take(record(odd)), None);
        }
        assert!(report.app_report.is_empty());
        assert_eq!(report.counter_sum("fault_4k"), None);
    }

    #[test]
    fn the_json_object_has_the_contracts_keys() {
        let report = RunReport::new("x", &RunSpec::default());
        let value = serde_json::to_value(report).unwrap();
        for key in [
            "schema",
            "app",
            "args",
            "platform",
            "cpus",
            "nodes",
            "mem_bytes",
            "thp",
            "numa",
            "exit_status",
            "wall_s",
            "boot_s",
            "user_s",
            "sys_s",
            "counters",
            "app_report",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["schema"], "dolmen-run-1");
        assert_eq!(value["platform"], "qemu");
    }
}
