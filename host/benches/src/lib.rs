//! Samples, their percentiles, and a table of them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Times of one thing, in microseconds.
#[derive(Debug, Clone)]
pub struct Samples {
    /// What was measured.
    pub name: &'static str,
    sorted: Vec<f64>,
}

impl Samples {
    /// Does something `count` times, after a tenth as many times that do not count.
    pub fn take(name: &'static str, count: usize, mut once: impl FnMut()) -> Self {
        for _ in 0..count.div_ceil(10) {
            once();
        }
        Self::of(name, (0..count).map(|_| time(&mut once)).collect())
    }

    /// Does several things in turn, each so many times a round: what else the machine does then touches all of them, and
    /// their ratios hold. The first round does not count.
    pub fn take_in_turn(rows: &mut [(&'static str, &mut dyn FnMut())], rounds: usize, count: usize) -> Vec<Self> {
        let mut timed: Vec<_> = rows.iter_mut().map(|(name, once)| (*name, move || time(once))).collect();
        let mut timed: Vec<Timed<'_>> =
            timed.iter_mut().map(|(name, once)| (*name, once as &mut dyn FnMut() -> Duration)).collect();
        Self::times_in_turn(&mut timed, rounds, count)
    }

    /// The same of things that say how long they took.
    pub fn times_in_turn(rows: &mut [Timed<'_>], rounds: usize, count: usize) -> Vec<Self> {
        let mut times = vec![Vec::new(); rows.len()];
        for round in 0..=rounds {
            for ((_, once), times) in rows.iter_mut().zip(&mut times) {
                for _ in 0..count {
                    let time = once();
                    if round > 0 {
                        times.push(time);
                    }
                }
            }
        }
        rows.iter().zip(times).map(|((name, _), times)| Self::of(name, times)).collect()
    }

    /// From times that were measured elsewhere.
    pub fn of(name: &'static str, times: Vec<Duration>) -> Self {
        let mut sorted: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        Self { name, sorted }
    }

    /// The value that this part of the samples is not above; 0 where there are none.
    pub fn percentile(&self, part: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index within the samples")]
        let index = ((self.sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
        self.sorted.get(index).copied().unwrap_or(0.0)
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    /// A row of the table: median, 99th percentile, and the median in floors.
    pub fn row(&self, floor: f64) -> String {
        let (p50, p99) = (self.median(), self.percentile(0.99));
        format!("{:<48} {p50:>10.1} {p99:>10.1} {:>8.1}", self.name, p50 / floor)
    }

    /// The row as JSON.
    pub fn json(&self, floor: f64) -> Value {
        let (p50, p99) = (self.median(), self.percentile(0.99));
        json!({"name": self.name, "p50_us": p50, "p99_us": p99, "floors": p50 / floor, "samples": self.sorted.len()})
    }
}

/// A row of a table, and something that says how long it took.
pub type Timed<'a> = (&'static str, &'a mut dyn FnMut() -> Duration);

/// How long something takes.
pub fn time(once: &mut (impl FnMut() + ?Sized)) -> Duration {
    let start = Instant::now();
    once();
    start.elapsed()
}

/// Private memory of this process, in bytes.
pub fn private_memory() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a measurement of this process")]
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let of = |key: &str| {
        text.lines()
            .filter(|line| line.starts_with(key))
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum::<u64>()
    };
    (of("Private_Clean:") + of("Private_Dirty:")) << 10
}

/// What the files in memory of this process take, in bytes: the images of scripts, which are mapped and so are nobody's
/// private memory.
pub fn files_in_memory() -> u64 {
    use std::os::unix::fs::MetadataExt;
    /// The unit of `st_blocks`.
    const BLOCK: u64 = 512;
    #[expect(clippy::disallowed_methods, reason = "a measurement of this process")]
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    descriptors
        .map(|entry| entry.path())
        .filter(|path| std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:")))
        .filter_map(|path| Some(std::fs::metadata(path).ok()?.blocks() * BLOCK))
        .sum()
}

/// The folder that cargo builds into, where a measurement leaves its figures; `None` where the program is somewhere else.
pub fn target() -> Option<PathBuf> {
    // target/release/deps/calls-…
    std::env::current_exe().ok()?.ancestors().nth(3).map(PathBuf::from)
}
