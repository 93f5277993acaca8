//! The interface `coverage`: which lines of a script have run.

use std::collections::BTreeSet;

/// Lines of a script's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Those at which a statement begins.
    pub statements: BTreeSet<u32>,
    /// Those of them that were reached.
    pub reached: BTreeSet<u32>,
}

/// Lines that are kept of one call.
const MAX_LINES: usize = 65_536;

impl Coverage {
    /// What a script reported of itself.
    pub fn of(statements: Vec<u32>, reached: Vec<u32>) -> Self {
        let statements: BTreeSet<u32> = statements.into_iter().take(MAX_LINES).collect();
        let reached = reached.into_iter().take(MAX_LINES).filter(|line| statements.contains(line)).collect();
        Self { statements, reached }
    }

    /// Adds what another call of the same script reached.
    pub fn add(&mut self, other: Self) {
        self.statements.extend(other.statements);
        self.reached.extend(other.reached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_and_none_that_is_no_statement() {
        let most = u32::try_from(MAX_LINES).unwrap();
        let coverage = Coverage::of((1..=most + 1).collect(), vec![1, most + 1, most + 2]);
        let wanted = Coverage { statements: (1..=most).collect(), reached: BTreeSet::from([1]) };
        assert!(coverage == wanted, "{} {:?}", coverage.statements.len(), coverage.reached);
    }
}
