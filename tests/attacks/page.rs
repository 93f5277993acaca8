//! `docs/security.md` shows the numbers of the corpus; they are to be true.

use crate::corpus::{AREAS, Any, folder};

/// What is wrong with the table of the page.
pub(crate) fn check(cases: &[Any]) -> Vec<String> {
    let page = std::fs::read_to_string(folder().join("../../docs/security.md")).unwrap_or_default();
    let mut wrong = Vec::new();
    let mut row = |name: &str, count: usize| {
        let line = page.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap_or_default();
        let told = line.rsplit('|').nth(1).map(str::trim);
        if told != Some(&count.to_string()) {
            wrong.push(format!("docs/security.md says {told:?} of `{name}`, and there are {count}"));
        }
    };
    for area in AREAS {
        row(area, cases.iter().filter(|case| case.area() == area).count());
    }
    row("all", cases.len());
    let mutants = std::fs::read_to_string(folder().join("../mutants/list.toml")).unwrap_or_default();
    row("in the list", mutants.lines().filter(|line| *line == "[[mutant]]").count());
    wrong
}
