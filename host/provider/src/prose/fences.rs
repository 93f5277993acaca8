//! Calls in the text of a model: blocks of JSON between fences, or a reply that is nothing but JSON.

use serde_json::{Map, Value as Json};

use crate::draft::MAX_CALLS;

/// What a fence may say of a block with calls.
const WORDS: [&str; 5] = ["", "json", "tool_call", "tool_calls", "tool"];
/// The longest line that may be a fence. It is checked with each character that comes.
const MAX_LINE: usize = 256;

/// A call that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) arguments: String,
}

/// The text of a reply without its calls, and the calls. `whole`: the reply was not cut.
pub(super) fn read(text: &str, whole: bool) -> (String, Vec<Called>) {
    let mut fences = Fences::default();
    let mut shown = fences.feed(text);
    let (rest, calls) = fences.end(whole);
    shown.push_str(&rest);
    (shown, calls)
}

/// Takes text as it comes, gives what is no call as soon as that is sure.
#[derive(Debug, Default)]
pub(super) struct Fences {
    place: State,
    /// The start of a line, as long as it may be a fence's.
    line: String,
    /// The line is none, and goes through as it comes.
    through: bool,
    calls: Vec<Called>,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing but space so far.
    #[default]
    Start,
    /// In a reply that begins as JSON does: all of it so far.
    Bare(String),
    /// Between blocks.
    Text,
    /// In a block that may be a call.
    Block {
        /// Of the fence that opened it.
        fence: Fence,
        /// The line of that fence.
        opening: String,
        body: String,
    },
    /// In a block that is none.
    Other(Fence),
}

/// A line that opens or closes a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    mark: char,
    length: usize,
}

impl Fences {
    /// Takes more text; gives what of it, and of what was held back, is no call.
    pub(super) fn feed(&mut self, text: &str) -> String {
        let mut shown = String::new();
        for c in text.chars() {
            match &mut self.place {
                State::Bare(all) => {
                    all.push(c);
                    continue;
                }
                State::Start if matches!(c, '{' | '[') => {
                    let mut all = std::mem::take(&mut self.line);
                    all.push(c);
                    self.place = State::Bare(all);
                    continue;
                }
                State::Start if !c.is_whitespace() => self.place = State::Text,
                _ => {}
            }
            self.take(c, &mut shown);
        }
        shown
    }

    fn take(&mut self, c: char, shown: &mut String) {
        if self.through {
            shown.push(c);
            self.through = c != '\n';
            return;
        }
        self.line.push(c);
        if c == '\n' {
            let line = std::mem::take(&mut self.line);
            self.end_line(line, shown);
        } else if !matches!(self.place, State::Block { .. }) && !may_be_fence(&self.line) {
            shown.push_str(&std::mem::take(&mut self.line));
            self.through = true;
        }
    }

    fn end_line(&mut self, line: String, shown: &mut String) {
        self.place = match std::mem::take(&mut self.place) {
            State::Block { fence, opening, mut body } => {
                if closes(&line, fence) {
                    match calls(&body).filter(|calls| self.calls.len().saturating_add(calls.len()) <= MAX_CALLS) {
                        Some(calls) => self.calls.extend(calls),
                        None => shown.extend([opening, body, line]),
                    }
                    State::Text
                } else {
                    body.push_str(&line);
                    State::Block { fence, opening, body }
                }
            }
            State::Other(fence) => {
                let closed = closes(&line, fence);
                shown.push_str(&line);
                if closed { State::Text } else { State::Other(fence) }
            }
            place => match opens(&line) {
                Some((fence, true)) => State::Block { fence, opening: line, body: String::new() },
                Some((fence, false)) => {
                    shown.push_str(&line);
                    State::Other(fence)
                }
                None => {
                    shown.push_str(&line);
                    place
                }
            },
        };
    }

    /// What was held back, and the calls. `whole`: the reply was not cut, so that a block without an end is one.
    pub(super) fn end(&mut self, whole: bool) -> (String, Vec<Called>) {
        let line = std::mem::take(&mut self.line);
        let mut shown = String::new();
        match std::mem::take(&mut self.place) {
            State::Bare(all) => match calls(&all).filter(|_| whole) {
                Some(calls) => self.calls.extend(calls),
                None => shown = all,
            },
            State::Block { fence, opening, mut body } => {
                let closed = closes(&line, fence);
                if !closed {
                    body.push_str(&line);
                }
                match calls(&body).filter(|_| closed || whole) {
                    Some(calls) => self.calls.extend(calls),
                    None => {
                        shown.extend([opening, body]);
                        if closed {
                            shown.push_str(&line);
                        }
                    }
                }
            }
            _ => shown = line,
        }
        self.calls.truncate(MAX_CALLS);
        (shown, std::mem::take(&mut self.calls))
    }
}

/// Whether what a line begins with may be the beginning of a fence.
fn may_be_fence(line: &str) -> bool {
    let rest = line.trim_start_matches(' ');
    if line.len() > MAX_LINE || line.len().saturating_sub(rest.len()) > 3 {
        return false;
    }
    let Some(mark) = rest.chars().next() else { return true };
    let info = rest.trim_start_matches(mark);
    matches!(mark, '`' | '~') && (info.is_empty() || fence(rest).is_some())
}

/// A fence at the start of a text, and what follows it.
fn fence(text: &str) -> Option<(Fence, &str)> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let info = text.trim_start_matches(mark);
    let length = text.len().saturating_sub(info.len());
    // A backtick later in the line is that of text between backticks.
    (length >= 3 && !(mark == '`' && info.contains('`'))).then_some((Fence { mark, length }, info))
}

fn opens(line: &str) -> Option<(Fence, bool)> {
    let (fence, info) = fence(line.trim())?;
    Some((fence, WORDS.iter().any(|word| info.trim().eq_ignore_ascii_case(word))))
}

fn closes(line: &str, open: Fence) -> bool {
    fence(line.trim())
        .is_some_and(|(fence, info)| fence.mark == open.mark && fence.length >= open.length && info.trim().is_empty())
}

/// The calls that a text is: an object with a name and arguments, or a list of such.
fn calls(text: &str) -> Option<Vec<Called>> {
    match serde_json::from_str(text.trim()).ok()? {
        Json::Array(list) if !list.is_empty() => list.iter().map(call).collect(),
        one => Some(vec![call(&one)?]),
    }
}

fn call(json: &Json) -> Option<Called> {
    let object = json.as_object()?;
    // As chat completions have it, which models have seen too.
    let object = object.get("function").and_then(Json::as_object).unwrap_or(object);
    let name = object.get("name")?.as_str().filter(|name| !name.trim().is_empty())?;
    // What is described is a tool and no call of it.
    if object.contains_key("description") {
        return None;
    }
    let arguments = match ["arguments", "parameters"].iter().find_map(|key| object.get(*key))? {
        Json::Null => "{}".to_owned(),
        object @ Json::Object(_) => object.to_string(),
        Json::String(text) => {
            serde_json::from_str::<Map<String, Json>>(text).ok()?;
            text.clone()
        }
        _ => return None,
    };
    Some(Called { name: name.trim().to_owned(), arguments })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn called(name: &str, arguments: &str) -> Called {
        Called { name: name.to_owned(), arguments: arguments.to_owned() }
    }

    fn read(text: &str) -> (String, Vec<Called>) {
        super::read(text, true)
    }

    #[test]
    fn a_block_with_a_call_is_one_and_the_text_around_it_stays() {
        let text = "I look.\n```json\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n```\nSoon.\n";
        assert_eq!(read(text), ("I look.\nSoon.\n".to_owned(), vec![called("read", r#"{"path":"a"}"#)]));
        for (open, close) in [("```", "```"), ("````JSON", "`````"), ("~~~ tool_call", "~~~"), ("  ```json ", " ```\r")]
        {
            let text = format!(
                "{open}\n[{{\"name\":\"a\",\"parameters\":null}},\n{{\"function\":{{\"name\":\"b\",\"arguments\":\"{{}}\"}}}}]\n{close}"
            );
            assert_eq!(read(&text), (String::new(), vec![called("a", "{}"), called("b", "{}")]), "{text}");
        }
    }

    #[test]
    fn a_block_that_is_no_call_is_text() {
        for text in [
            "```json\n{\"name\": \"read\"}\n```\n",
            "```json\n{\"name\": \"read\", \"arguments\": [1]}\n```\n",
            "```json\n{\"name\": \"read\", \"arguments\": \"x\"}\n```\n",
            "```json\n{\"name\": \"read\", \"description\": \"d\", \"parameters\": {}}\n```\n",
            "```json\n[{\"name\": \"read\", \"arguments\": {}}, 1]\n```\n",
            "```json\n[]\n```\n",
            "```json\nno json\n```\n",
            "```python\n{\"name\": \"read\", \"arguments\": {}}\n```\n",
            "````\n```json\n{\"name\": \"read\", \"arguments\": {}}\n```\n````\n",
            "```python\nx\n```\nand\n```\ny\n```\n",
            "like ```json\n{\"name\": \"read\", \"arguments\": {}}\n```",
            "    ```json\n    {\"name\": \"read\", \"arguments\": {}}\n",
            "```x``` is text\n``y``",
            "{\"answer\": 42}",
            "[1](http://x)",
            "  ",
            "``",
        ] {
            assert_eq!(read(text), (text.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn a_reply_that_is_nothing_but_a_call_is_one() {
        assert_eq!(read("\n {\"name\":\"a\",\"arguments\":{}}\n"), ("\n".to_owned(), vec![called("a", "{}")]));
        let text = "{\"name\":\"a\",\"arguments\":{}} is how I would call it";
        assert_eq!(read(text), (text.to_owned(), vec![]));
    }

    #[test]
    fn a_block_without_an_end_is_a_call_where_the_reply_was_not_cut() {
        let text = "```json\n{\"name\":\"a\",\"arguments\":{}}";
        assert_eq!(read(text), (String::new(), vec![called("a", "{}")]));
        assert_eq!(super::read(text, false), (text.to_owned(), vec![]));
        let closed = format!("{text}\n```");
        assert_eq!(super::read(&closed, false), (String::new(), vec![called("a", "{}")]));
    }

    #[test]
    fn text_is_shown_as_it_comes_and_calls_are_not() {
        let mut fences = Fences::default();
        assert_eq!(fences.feed("Hel"), "Hel");
        assert_eq!(fences.feed("lo\n``"), "lo\n");
        assert_eq!(fences.feed("x"), "``x");
        assert_eq!(fences.feed("\n```js"), "\n");
        assert_eq!(fences.feed("on\n{\"name\":\"a\","), "");
        assert_eq!(fences.feed("\"arguments\":{}}\n```\nbye"), "bye");
        assert_eq!(fences.end(true), (String::new(), vec![called("a", "{}")]));
    }

    #[test]
    fn a_line_that_is_too_long_for_a_fence_is_not_held_back() {
        let mut fences = Fences::default();
        let marks = "`".repeat(MAX_LINE);
        assert_eq!(fences.feed(&marks), "");
        assert_eq!(fences.feed("`"), format!("{marks}`"));
        assert_eq!(fences.feed("`"), "`");
        assert_eq!(fences.feed("\n"), "\n");
        let call = format!("{}json\n{{\"name\":\"a\",\"arguments\":{{}}}}\n{}\n", &marks[4..], &marks[4..]);
        assert_eq!(fences.feed(&call), "");
        assert_eq!(fences.end(true), (String::new(), vec![called("a", "{}")]));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter_and_no_text_is_lost(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "```", "~~~", "json", "\n", "{\"name\":\"a\",\"arguments\":{}}", " ", "x", "`", "é", "[", "```\n", "\n```json\n",
            ]), 0..14),
            size in 1_usize..5,
            whole: bool,
        ) {
            let text = parts.concat();
            let once = super::read(&text, whole);
            let mut fences = Fences::default();
            let chars: Vec<char> = text.chars().collect();
            let mut shown: String = chars.chunks(size).map(|piece| fences.feed(&piece.iter().collect::<String>())).collect();
            let (rest, calls) = fences.end(whole);
            shown.push_str(&rest);
            prop_assert_eq!(&(shown, calls), &once);
            if once.1.is_empty() {
                prop_assert_eq!(once.0, text);
            }
        }
    }
}
