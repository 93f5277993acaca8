//! What loading may take in all: of each source, and of the project.
//!
//! A file has bounds of its own, see [`yaml`](harness_artifact::yaml) and [`sys`](harness_sys); these hold their sum.
//! A source is a bundle, or all the single artifacts of a root. Nothing here depends on a clock.

use std::collections::HashMap;

use harness_artifact::diagnostic::Diagnostic;
use harness_policy::text::quoted;

/// What a source may take.
pub(super) const SOURCE: Amounts =
    Amounts { files: 5_000, bytes: 8 << 20, values: 200_000, problems: 1_000, work: 32_000_000 };
/// What all sources may take together.
pub(super) const PROJECT: Amounts =
    Amounts { files: 20_000, bytes: 32 << 20, values: 500_000, problems: 5_000, work: 100_000_000 };

/// Work that a value takes, in that of a byte.
const VALUE: u64 = 100;
/// Work that a problem takes, in that of a byte.
const PROBLEM: u64 = 10_000;

/// What was taken, or may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// Entries of folders that were listed.
    pub(super) files: u64,
    /// Bytes of files that were read; of one that has several names, once for each.
    pub(super) bytes: u64,
    /// Keys and values of front matter.
    pub(super) values: u64,
    /// Errors and warnings.
    pub(super) problems: u64,
    /// All of these together, weighed.
    pub(super) work: u64,
}

/// What was taken so far.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    project: Amounts,
    /// By source; none of one that is over its bounds.
    sources: HashMap<String, Option<Amounts>>,
    /// Whether the project is over its bounds.
    spent: bool,
}

impl Amounts {
    /// Entries of a folder.
    pub(super) fn listed(count: usize) -> Self {
        Self { files: wide(count), work: wide(count).saturating_mul(VALUE), ..Self::default() }
    }

    /// A file that was read.
    pub(super) fn read(bytes: usize) -> Self {
        Self { bytes: wide(bytes), work: wide(bytes), ..Self::default() }
    }

    /// What a file came to.
    pub(super) fn parsed(values: usize, problems: usize) -> Self {
        let (values, problems) = (wide(values), wide(problems));
        let work = values.saturating_mul(VALUE).saturating_add(problems.saturating_mul(PROBLEM));
        Self { values, problems, work, ..Self::default() }
    }

    fn and(self, more: Self) -> Self {
        Self {
            files: self.files.saturating_add(more.files),
            bytes: self.bytes.saturating_add(more.bytes),
            values: self.values.saturating_add(more.values),
            problems: self.problems.saturating_add(more.problems),
            work: self.work.saturating_add(more.work),
        }
    }

    /// The first bound that this is over.
    fn over(&self, most: &Self) -> Option<String> {
        let each = [
            (self.files, most.files, "files and folders"),
            (self.bytes, most.bytes, "bytes in its files"),
            (self.values, most.values, "keys and values"),
            (self.problems, most.problems, "errors and warnings"),
            (self.work, most.work, "units of work to load it"),
        ];
        each.into_iter().find(|(used, most, _)| used > most).map(|(_, most, what)| format!("more than {most} {what}"))
    }
}

impl Bounds {
    /// Whether a source may still be read.
    pub(super) fn admits(&self, source: &str) -> bool {
        !self.spent && !matches!(self.sources.get(source), Some(None))
    }

    /// Takes more for a source.
    ///
    /// # Errors
    ///
    /// Where that is over a bound: the one diagnostic of it. The source, or with it the whole project, is read no further.
    pub(super) fn take(&mut self, source: &str, more: Amounts) -> Result<(), Diagnostic> {
        self.project = self.project.and(more);
        let of_source = self.sources.entry(source.to_owned()).or_insert(Some(Amounts::default()));
        let Some(used) = of_source.as_mut() else { return Ok(()) };
        *used = used.and(more);
        if let Some(what) = used.over(&SOURCE) {
            *of_source = None;
            return Err(refused(quoted(source), &what, &SOURCE, "a source"));
        }
        if let Some(what) = self.project.over(&PROJECT).filter(|_| !self.spent) {
            self.spent = true;
            let last = format!("the project with {}", quoted(source));
            return Err(refused(last, &what, &PROJECT, "a project"));
        }
        Ok(())
    }
}

fn refused(whose: String, what: &str, most: &Amounts, of: &str) -> Diagnostic {
    let Amounts { files, bytes, values, problems, .. } = most;
    let hint = format!(
        "{of} has at most {files} files and folders, {bytes} bytes, {values} keys and values, {problems} errors and \
         warnings; move files that are not artifacts elsewhere"
    );
    Diagnostic::error(format!("{whose} is not loaded: it has {what}")).hint(hint)
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bound_that_is_passed_is_told_once() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.take("plugins/a", Amounts::read(8 << 20)), Ok(()));
        let over = bounds.take("plugins/a", Amounts::read(1)).unwrap_err();
        assert_eq!(over.message, "`plugins/a` is not loaded: it has more than 8388608 bytes in its files");
        assert!(!bounds.admits("plugins/a") && bounds.admits("plugins/b"));
        assert_eq!(bounds.take("plugins/a", Amounts::read(1)), Ok(()));
    }

    #[test]
    fn each_has_a_bound_and_all_together_have_one() {
        for (more, what) in [
            (Amounts::listed(5_001), "more than 5000 files and folders"),
            (Amounts::parsed(200_001, 0), "more than 200000 keys and values"),
            (Amounts::parsed(0, 1_001), "more than 1000 errors and warnings"),
            (
                Amounts::parsed(200_000, 1_000).and(Amounts::read(8 << 20)),
                "more than 32000000 units of work to load it",
            ),
        ] {
            let over = Bounds::default().take("x", more).unwrap_err();
            assert_eq!(over.message, format!("`x` is not loaded: it has {what}"));
        }
        let mut bounds = Bounds::default();
        let all: Vec<_> = (0..5).map(|n| bounds.take(&format!("plugins/{n}"), Amounts::read(7 << 20))).collect();
        assert_eq!(all.iter().filter(|one| one.is_err()).count(), 1);
        let over = all[4].clone().unwrap_err();
        assert_eq!(
            over.message,
            "the project with `plugins/4` is not loaded: it has more than 33554432 bytes in its files"
        );
        assert!(!bounds.admits("plugins/0") && !bounds.admits("plugins/9"));
    }
}
