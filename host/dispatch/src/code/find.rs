//! `search_tools`: tools by words of their names and descriptions.

use super::{Callable, stub};
use harness_artifact::tool::Tool;

/// Tools that one search returns.
const MAX_FOUND: usize = 20;
/// Bytes of all of them, unless the first one is larger.
const MAX_BYTES: usize = 32 << 10;
/// Words of a query that count.
const MAX_WORDS: usize = 16;

/// What a query finds, of items with a name and a description in the order of their names: those with more of its words
/// first, in names before descriptions. Items that are equal in that keep their order.
pub fn rank<'a, T>(query: &str, items: impl IntoIterator<Item = (&'a str, &'a str, T)>) -> Vec<T> {
    let query = query.to_lowercase();
    let words: Vec<&str> =
        query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).take(MAX_WORDS).collect();
    let mut found: Vec<(usize, usize, T)> = Vec::new();
    for (name, description, item) in items {
        let (name, description) = (name.to_lowercase(), description.to_lowercase());
        let in_name = words.iter().filter(|word| name.contains(**word)).count();
        let anywhere = words.iter().filter(|word| name.contains(**word) || description.contains(**word)).count();
        if anywhere > 0 {
            found.push((anywhere, in_name, item));
        }
    }
    found.sort_by_key(|(anywhere, in_name, _)| std::cmp::Reverse((*anywhere, *in_name)));
    found.into_iter().map(|(.., item)| item).collect()
}

/// The answer: how a script calls each, and what it does.
pub(super) fn answer(callable: &Callable, query: &str) -> String {
    let tools = callable.tools.values().map(|tool| (tool.name.as_str(), tool.description.as_str(), &**tool));
    let found: Vec<&Tool> = rank(query, tools);
    let total = found.len();
    let (mut lines, mut bytes) = (Vec::new(), 0_usize);
    for tool in found.into_iter().take(MAX_FOUND) {
        let line = stub::line(callable, tool);
        bytes = bytes.saturating_add(line.len());
        if bytes > MAX_BYTES && !lines.is_empty() {
            break;
        }
        lines.push(line);
    }
    let all = callable.tools.len();
    if total == 0 {
        return format!("None of {all} tools: use other words, of what the tool does.");
    }
    let shown = lines.len();
    let more = if shown < total { format!(", the first {shown} of them") } else { String::new() };
    format!("{total} of {all} tools{more}:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_words_come_first_and_names_before_descriptions() {
        let items = [
            ("alpha", "Deploys to staging.", 1),
            ("beta_deploy", "Sends.", 2),
            ("deploy_staging", "Sends.", 3),
            ("gamma", "Nothing of it.", 4),
            ("staging", "Deploy it.", 5),
        ];
        assert_eq!(rank("Deploy, staging!", items), [3, 5, 1, 2]);
        assert_eq!(rank("", items), [0; 0]);
        assert_eq!(rank("nowhere", items), [0; 0]);
    }
}
