//! The report as tables for a terminal.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, LineStyle, Table};

use crate::loops::{Loop, Times};
use crate::report::{LlfreeReport, MixedRow, Operation, Report, Row, SoakRow, THREADS};

impl Report {
    /// The tables, each with a line that says what it shows.
    pub fn tables(&self) -> String {
        let mut text = format!(
            "Times in ns for one operation of one thread; medians of {} turns, {} MiB of pretended memory\n{}\n",
            self.repetitions,
            self.frames / 256,
            loops(&self.loops)
        );
        if self.cpus < THREADS {
            text.push_str("This machine has too few processors for the figures of several threads to mean much.\n");
        }
        if let Some(rows) = &self.mixed {
            text.push_str(&format!(
                "\nSingle frames beside huge pages, 90 % of memory used; millions of allocations per second\n{}\n",
                mixed(rows)
            ));
        }
        if let Some(rows) = &self.soak {
            text.push_str(&format!(
                "\nFragmentation after allocations and frees of random order and lifetime at 75 % occupancy\n{}\n",
                soak(rows)
            ));
        }
        if let Some(report) = &self.llfree {
            text.push_str(&format!(
                "\nBeside LLFree's own bench: half of {} MiB, each turn in processes of its own; ns\n{}\n",
                report.frames / 256,
                llfree(report)
            ));
        }
        text
    }
}

/// The names of a loop's operations.
fn names(what: Loop) -> [&'static str; 2] {
    match what {
        Loop::Repeat => ["pair", ""],
        Loop::Bulk | Loop::Random => ["get", "put"],
    }
}

/// What all allocators needed for one kind of operation.
fn line(rows: &[Row], name: &str, of: fn(&Row) -> Option<&Operation>) -> Option<Vec<String>> {
    let first = rows.first()?;
    let operations: Vec<&Operation> = rows.iter().filter_map(of).collect();
    let (dolmen, others) = operations.split_first()?;
    let best = others.iter().map(|other| other.to_dolmen);
    let mut cells = vec![
        first.what.name().to_owned(),
        first.order.to_string(),
        first.threads.to_string(),
        name.to_owned(),
    ];
    cells.extend(operations.iter().map(|operation| time(operation.ns)));
    cells.push(format!("{:.2}", best.fold(f64::INFINITY, f64::min)));
    cells.push(match first.threads {
        1 => String::new(),
        _ => format!("{:.2}", dolmen.scaling),
    });
    Some(cells)
}

fn loops(rows: &[Row]) -> Table {
    let same = |a: &Row, b: &Row| (a.what, a.order, a.threads) == (b.what, b.order, b.threads);
    let mut groups = rows.chunk_by(same).peekable();
    let mut heads = vec!["loop", "order", "threads", "operation"];
    let allocators = groups.peek().copied().unwrap_or_default();
    heads.extend(allocators.iter().map(|row| row.allocator));
    heads.extend(["best other\n/ dolmen", "dolmen's\nscaling"]);
    let mut table = table(&heads);
    for group in groups {
        let names = names(group[0].what);
        let lines = [
            line(group, names[0], |row| Some(&row.get)),
            line(group, names[1], |row| row.put.as_ref()),
        ];
        table.add_rows(lines.into_iter().flatten());
    }
    table
}

fn mixed(rows: &[MixedRow]) -> Table {
    let mut table = table(&[
        "allocator",
        "4K alone",
        "beside 2M",
        "kept",
        "refused",
        "2M alone",
        "beside 4K",
        "kept",
        "refused",
    ]);
    for row in rows {
        let mut cells = vec![row.allocator.to_owned()];
        for task in [&row.base, &row.huge] {
            cells.push(format!("{:.2}", task.alone / 1e6));
            cells.push(format!("{:.2}", task.beside / 1e6));
            cells.push(percent(task.kept));
            cells.push(percent(task.refused));
        }
        table.add_row(cells);
    }
    table
}

fn soak(rows: &[SoakRow]) -> Table {
    let mut table = table(&[
        "allocator",
        "operations",
        "refused",
        "free",
        "of it in whole blocks of 2 MiB",
    ]);
    for row in rows {
        table.add_row([
            row.allocator.to_owned(),
            row.operations.to_string(),
            row.refused.to_string(),
            format!("{} MiB", row.free.frames / 256),
            percent(row.whole_share),
        ]);
    }
    table
}

fn llfree(report: &LlfreeReport) -> Table {
    let mut table = table(&[
        "loop",
        "order",
        "threads",
        "operation",
        "dolmen",
        "llfree",
        "dolmen / llfree",
    ]);
    for row in &report.loops {
        let of = |times: Times| [Some(times.get), times.put];
        let columns = of(row.dolmen).into_iter().zip(of(row.llfree));
        let columns = columns.zip(of(row.ratio)).zip(names(row.what));
        for (((dolmen, llfree), ratio), name) in columns {
            let (Some(dolmen), Some(llfree), Some(ratio)) = (dolmen, llfree, ratio) else {
                continue;
            };
            table.add_row([
                row.what.name().to_owned(),
                row.order.to_string(),
                row.threads.to_string(),
                name.to_owned(),
                time(dolmen),
                time(llfree),
                format!("{ratio:.2}"),
            ]);
        }
    }
    table
}

fn time(nanoseconds: f64) -> String {
    format!("{nanoseconds:.1}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// An empty table; the first column holds names, the others figures.
fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
        .set_header(heads);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
