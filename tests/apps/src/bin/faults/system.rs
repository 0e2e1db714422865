//! Files, clocks and the creation of threads.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn because(what: &str, path: &Path) -> impl Fn(std::io::Error) -> String {
    let what = format!("cannot {what} {}", path.display());
    move |error| format!("{what}: {error}")
}

/// Lists and reads all files of a folder, in every way; prints one line for each with its length and a checksum.
pub(crate) fn files(folder: &str) -> Result<(), String> {
    let mut folders = vec![PathBuf::from(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(because("list", &folder))? {
            let path = entry.map_err(because("list", &folder))?.path();
            let metadata = fs::metadata(&path).map_err(because("look at", &path))?;
            if metadata.is_dir() {
                folders.push(path);
            } else {
                files.push((path, metadata.len()));
            }
        }
    }
    files.sort();
    for (path, len) in &files {
        let sum = read_every_way(path, *len)?;
        println!("file {} {len} {sum:016x}", path.display());
    }
    let missing = Path::new(folder).join("there-is-no-such-file");
    match File::open(&missing) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(format!("a missing file gives another error: {error}")),
        Ok(_) => return Err("a missing file can be opened".into()),
    }
    if fs::read_dir(&missing).is_ok() {
        return Err("a missing folder can be listed".into());
    }
    println!("ok read {} files", files.len());
    Ok(())
}

/// Copies a file's contents.
pub(crate) fn copy(from: &str, to: &str) -> Result<(), String> {
    let contents = fs::read(from).map_err(because("read", Path::new(from)))?;
    fs::write(to, &contents).map_err(because("write", Path::new(to)))?;
    println!("ok copied {} bytes", contents.len());
    Ok(())
}

/// Reads a file at once, in pieces and from its middle; gives its checksum (FNV-1a).
fn read_every_way(path: &Path, len: u64) -> Result<u64, String> {
    let failed = because("read", path);
    let whole = fs::read(path).map_err(&failed)?;
    let name = path.display();
    if whole.len() as u64 != len {
        return Err(format!("{name} has {} bytes, not {len}", whole.len()));
    }
    let mut file = File::open(path).map_err(&failed)?;
    if file.metadata().map_err(&failed)?.len() != len {
        return Err(format!("{name} has another length once it is open"));
    }
    let (mut pieces, mut piece) = (Vec::new(), [0u8; 37]);
    loop {
        match file.read(&mut piece).map_err(&failed)? {
            0 => break,
            count => pieces.extend_from_slice(&piece[..count]),
        }
    }
    if pieces != whole {
        return Err(format!("{name} reads differently in pieces"));
    }
    for (from, start) in [
        (SeekFrom::Start(len / 2), len / 2),
        (SeekFrom::End(-((len / 3) as i64)), len - len / 3),
        (SeekFrom::End(0), len),
        (SeekFrom::Start(0), 0),
    ] {
        let mut tail = Vec::new();
        let at = file.seek(from).map_err(&failed)?;
        file.read_to_end(&mut tail).map_err(&failed)?;
        if at != start || tail != whole[start as usize..] {
            return Err(format!("{name} reads differently from byte {start}"));
        }
    }
    Ok(whole.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// Clocks go forwards, tell a plausible date, and sleeping takes at least its time.
pub(crate) fn time() -> Result<(), String> {
    let workers: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(|| {
                let mut last = Instant::now();
                (0..20_000).all(|_| {
                    let now = Instant::now();
                    let forwards = now >= last;
                    last = now;
                    forwards
                })
            })
        })
        .collect();
    for worker in workers {
        if worker.join().ok() != Some(true) {
            return Err("the monotonic clock went backwards".into());
        }
    }
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "it is before 1970")?;
    let years = since_1970.as_secs() / 31_556_952;
    if !(54..130).contains(&years) {
        return Err(format!("the year is {}", 1970 + years));
    }
    for time in [1, 50, 999, 1000, 5000, 30_000, 250_000].map(Duration::from_micros) {
        let start = Instant::now();
        thread::sleep(time);
        let slept = start.elapsed();
        if slept < time {
            return Err(format!("a sleep of {time:?} took {slept:?}"));
        }
    }
    let (instant, system) = (Instant::now(), SystemTime::now());
    thread::sleep(Duration::from_millis(300));
    let by_instant = instant.elapsed().as_secs_f64();
    let by_system = system
        .elapsed()
        .map_err(|_| "real time went backwards")?
        .as_secs_f64();
    if (by_instant - by_system).abs() > 0.2 {
        return Err(format!(
            "{by_instant:.3} s of monotonic time were {by_system:.3} s of real time"
        ));
    }
    println!("ok seconds since 1970: {}", since_1970.as_secs());
    Ok(())
}

/// Creates and joins threads, a few at a time, for so many rounds.
pub(crate) fn spawn_storm(rounds: usize) -> Result<(), String> {
    let start = Instant::now();
    for round in 0..rounds {
        let workers: Vec<_> = (0..4)
            .map(|number| thread::Builder::new().spawn(move || round ^ number))
            .collect();
        for (number, worker) in workers.into_iter().enumerate() {
            let worker = worker
                .map_err(|error| format!("round {round}: cannot create a thread: {error}"))?;
            if worker.join().ok() != Some(round ^ number) {
                return Err(format!("round {round}: a thread returned something else"));
            }
        }
    }
    println!(
        "ok created and joined {} threads in {:.3} s",
        4 * rounds,
        start.elapsed().as_secs_f64()
    );
    dolmen::report_value("spawned_threads", 4 * rounds);
    Ok(())
}
