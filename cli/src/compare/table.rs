//! The table of a comparison.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table};

use super::Row;
use crate::spec::Platform;

const COLUMNS: [&str; 14] = [
    "platform",
    "cpus",
    "nodes",
    "thp",
    "wall s",
    "boot s",
    "user s",
    "sys s",
    "4K faults",
    "2M faults",
    "IPIs",
    "remote_share",
    "checksum",
    "status",
];

/// How many columns at the left and at the right hold words.
const WORDS: [usize; 4] = [0, 3, 12, 13];

/// Draws the rows; with colours if `colour`.
pub fn table(rows: &[Row], colour: bool) -> String {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(COLUMNS);
    if colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    for row in rows {
        table.add_row(cells(row));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if !WORDS.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn cells(row: &Row) -> Vec<Cell> {
    let configuration = &row.configuration;
    let own_nodes = configuration.platform == Platform::Linux;
    let status = if row.exit_status == 0 {
        Cell::new("ok").fg(Color::Green)
    } else {
        Cell::new(format!("failed ({})", row.exit_status)).fg(Color::Red)
    };
    let mut cells: Vec<Cell> = [
        configuration.platform.to_string(),
        configuration.cpus.to_string(),
        if own_nodes {
            absent()
        } else {
            configuration.nodes.to_string()
        },
        configuration.thp.to_string(),
        seconds(Some(row.wall_s)),
        seconds(row.boot_s),
        seconds(row.user_s),
        seconds(row.sys_s),
        count(row.faults_4k),
        count(row.faults_2m),
        count(row.ipis),
        row.remote_share
            .map_or_else(absent, |share| format!("{:.1} %", share * 100.0)),
        row.checksum.clone().unwrap_or_else(absent),
    ]
    .into_iter()
    .map(Cell::new)
    .collect();
    cells.push(status);
    cells
}

fn absent() -> String {
    "-".to_owned()
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(absent, |s| {
        if s < 1.0 {
            format!("{s:.3}")
        } else {
            format!("{s:.2}")
        }
    })
}

/// A number with its thousands apart.
fn count(value: Option<u64>) -> String {
    let Some(value) = value else {
        return absent();
    };
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{row, run};
    use super::*;
    use crate::spec::Thp;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(Some(0)), "0");
        assert_eq!(count(Some(999)), "999");
        assert_eq!(count(Some(1_234_567)), "1,234,567");
        assert_eq!(count(None), "-");
        assert_eq!(seconds(Some(0.01234)), "0.012");
        assert_eq!(seconds(Some(12.345)), "12.35");
    }

    #[test]
    fn the_table_shows_every_column_and_colours_only_when_asked() {
        let mut bad = run(1.0, "b");
        bad.exit_status = 134;
        let rows = [
            row(Platform::Qemu, Thp::Never, vec![run(2.5, "00ff")]),
            row(Platform::Linux, Thp::Always, vec![bad]),
        ];
        let plain = table(&rows, false);
        for word in COLUMNS
            .iter()
            .chain(&["12,345", "2.50", "25.0 %", "00ff", "failed (134)"])
        {
            assert!(plain.contains(word), "{word} in\n{plain}");
        }
        assert!(!plain.contains('\x1b'));
        assert!(table(&rows, true).contains('\x1b'));
    }
}
