//! Where a script is nested most deeply, for an interpreter whose stack did not reach and which cannot tell. A guess from
//! the text alone: it decides nothing but the line that its author is shown.

/// How many things lie within each other at most, and line and column, from 1, of the statement in which they do:
/// operands, calls, brackets, blocks, and the branches of an `if`, each of which is the `else` of the one before.
pub(crate) fn deepest(text: &str) -> (usize, (u32, u32)) {
    let mut deepest = Deepest { most: 0, at: (1, 1) };
    let mut chains: Vec<Chain> = Vec::new();
    let mut statement = Statement::default();
    for (number, line) in (1_u32..).zip(text.lines()) {
        if !statement.goes_on() {
            let indent = line.len().saturating_sub(line.trim_start().len());
            let column = u32::try_from(indent).unwrap_or(u32::MAX).saturating_add(1);
            statement = Statement { start: (number, column), ..Statement::default() };
            let word = line.trim_start();
            if !word.is_empty() && !word.starts_with('#') {
                chains.retain(|chain| chain.indent <= indent);
                match chains.last_mut().filter(|chain| chain.indent == indent) {
                    Some(chain) if word.starts_with("elif") => {
                        chain.branches = chain.branches.saturating_add(1);
                        deepest.note(chain.branches, chain.start);
                    }
                    Some(chain) => *chain = Chain { indent, branches: 0, start: statement.start },
                    None => chains.push(Chain { indent, branches: 0, start: statement.start }),
                }
                // Blocks within blocks.
                deepest.note(chains.len(), statement.start);
            }
        }
        statement.read(line);
        deepest.note(statement.most, statement.start);
    }
    (deepest.most, deepest.at)
}

struct Deepest {
    most: usize,
    at: (u32, u32),
}

impl Deepest {
    fn note(&mut self, depth: usize, at: (u32, u32)) {
        if depth > self.most {
            (self.most, self.at) = (depth, at);
        }
    }
}

/// An `if` and its branches so far, or any other statement.
struct Chain {
    indent: usize,
    branches: usize,
    start: (u32, u32),
}

/// What has been read of a statement.
#[derive(Default)]
struct Statement {
    start: (u32, u32),
    /// How deep it is at this place.
    depth: usize,
    most: usize,
    /// How deep it was where each open bracket begins.
    open: Vec<usize>,
    /// The quotes that end the text that continues.
    quotes: Option<&'static str>,
    continued: bool,
}

impl Statement {
    fn goes_on(&self) -> bool {
        !self.open.is_empty() || self.quotes.is_some() || self.continued
    }

    fn read(&mut self, line: &str) {
        self.continued = false;
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let after = rest.get(c.len_utf8()..).unwrap_or_default();
            if let Some(quotes) = self.quotes {
                rest = match (c, rest.strip_prefix(quotes)) {
                    ('\\', _) => after.get(after.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default(),
                    (_, Some(after)) => {
                        self.quotes = None;
                        after
                    }
                    _ => after,
                };
                continue;
            }
            if c == '#' {
                break;
            }
            if let Some(quotes) = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| rest.starts_with(quotes)) {
                self.quotes = Some(quotes);
                rest = rest.get(quotes.len()..).unwrap_or_default();
                continue;
            }
            self.take(c, rest);
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest = if word > 0 { rest.get(word..).unwrap_or_default() } else { after };
        }
        self.continued |= line.ends_with('\\');
        if self.quotes.is_some_and(|quotes| quotes.len() == 1) {
            self.quotes = None;
        }
    }

    fn take(&mut self, c: char, rest: &str) {
        match c {
            '(' | '[' | '{' => {
                self.depth = self.depth.saturating_add(1);
                self.open.push(self.depth);
            }
            ')' | ']' | '}' => self.depth = self.open.pop().unwrap_or(0),
            // What comes next does not lie within what was before.
            ',' => self.depth = self.open.last().copied().unwrap_or(0),
            '+' | '-' | '*' | '/' | '%' | '|' | '&' | '^' | '<' | '>' | '.' | '~' => {
                self.depth = self.depth.saturating_add(1)
            }
            _ if ["not ", "and ", "or ", "if ", "in ", "lambda"].iter().any(|word| rest.starts_with(word)) => {
                self.depth = self.depth.saturating_add(1);
            }
            _ => {}
        }
        self.most = self.most.max(self.depth);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::deepest;

    #[test]
    fn the_statement_that_is_nested_most() {
        let deep = |statement: &str| {
            let filler =
                "x = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\ny = ')' + \"(((((((((((((((((((((\" # ((((((((((\n";
            deepest(&format!("{filler}def run(args):\n    if x:\n      {statement}\n    return f(x.a + 1)\n{filler}")).1
        };
        for statement in [
            "x = 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8".to_owned(),
            format!("return x{}", ".strip()".repeat(9)),
            format!("y = {}1{}", "[".repeat(9), "]".repeat(9)),
            format!("y = {}1", "not ".repeat(9)),
            format!("y = {}1", "~".repeat(9)),
            format!("y = {}1", "1 in ".repeat(9)),
            format!("y = (\n{}\n1)", " 1 +\n".repeat(9)),
            format!("y = '''\n{}''' + 1 + 2 + 3 + 4 + 5 + 6 + 7", "(\n".repeat(9)),
            format!("if x == 1:\n        pass\n{}", "      elif x == 2:\n        pass\n".repeat(9)),
        ] {
            assert_eq!(deep(&statement), (5, 7), "{statement}");
        }
        let blocks: String = (0..12).map(|n| format!("{}if x:\n", " ".repeat(n))).collect();
        assert_eq!(deepest(&format!("x = [[1]]\n{blocks}{}pass\n", " ".repeat(12))), (13, (14, 13)));
        assert_eq!(deepest(""), (0, (1, 1)));
    }

    proptest! {
        #[test]
        fn is_in_the_text(text in r#"[ ab(){}\[\]'"\\#+.,\n]{0,200}"#) {
            let (_, (line, column)) = deepest(&text);
            let lines: Vec<&str> = text.lines().collect();
            prop_assert!(line == 1 || (line as usize <= lines.len() && column as usize <= lines[line as usize - 1].len() + 1));
        }
    }
}
