//! One rule about commands, as an operator writes it.

mod machine;

use std::fmt;

use crate::policy::network::shown;

/// A command that may be run: `git`, `cargo test *`, `/opt/tools/lint --fix "src/*.rs"`.
///
/// Words are split on spaces. Double quotes keep spaces together, and what stands in them means itself. `*` stands for
/// any characters of one argument and `?` for one; an argument that starts with `-` is an option, and a word that starts
/// with `*` or `?` does not match it. A last word `*` stands for any further arguments, options too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRule {
    /// As it was written.
    text: String,
    /// A bare name, or an absolute path without `.`, `..` or `//`.
    program: String,
    args: Args,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Args {
    /// Only the program was named: whatever its arguments.
    Any,
    /// As many as there are words, each matching.
    Exactly(Vec<Word>),
    /// The same, and then whatever follows.
    StartingWith(Vec<Word>),
}

/// A word of a rule: what an argument has to look like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Word(Vec<Piece>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Char(char),
    One,
    Many,
}

/// A rule is one line that a person writes; this also bounds the work of a match.
const MAX_BYTES: usize = 1024;

impl CommandRule {
    /// Reads a rule of at most 1,024 bytes. An error says in one line what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{}` is not a command: {why}", shown(text));
        if text.len() > MAX_BYTES {
            return Err(wrong("it is over 1,024 bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("there is a control character in it"));
        }
        let mut words = words(text).map_err(wrong)?.into_iter();
        let program = words.next().ok_or_else(|| wrong("it is empty"))?;
        let program = program.literal().ok_or_else(|| wrong("a program is named without `*` and `?`"))?;
        is_program(&program).map_err(wrong)?;
        let mut args: Vec<Word> = words.collect();
        let args = if args.is_empty() {
            Args::Any
        } else if args.pop_if(|last| last.0 == [Piece::Many]).is_some() {
            Args::StartingWith(args)
        } else {
            Args::Exactly(args)
        };
        Ok(Self { text: text.to_owned(), program, args })
    }

    /// The narrowest rule that allows a command, or `None` where no text of a sensible length says it.
    pub(crate) fn for_command(program: &str, args: &[String]) -> Option<String> {
        let mut text = quoted(program)?;
        for arg in args {
            text.push(' ');
            text.push_str(&quoted(arg)?);
            if text.len() > 200 {
                return None;
            }
        }
        Self::parse(&text).is_ok().then_some(text)
    }

    /// Whether the rule allows this program with these arguments.
    pub fn covers(&self, program: &str, args: &[String]) -> bool {
        if self.program != program {
            return false;
        }
        let (words, exact) = match &self.args {
            Args::Any => return true,
            Args::Exactly(words) => (words, true),
            Args::StartingWith(words) => (words, false),
        };
        args.len() >= words.len()
            && (!exact || args.len() == words.len())
            && words.iter().zip(args).all(|(word, arg)| word.matches(arg))
    }
}

/// As it was written.
impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A bare name, or an absolute path in its one shortest spelling: a rule is compared with what a script asks letter by
/// letter.
fn is_program(text: &str) -> Result<(), &'static str> {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    match text.strip_prefix('/') {
        Some(rest) if rest.split('/').all(plain) => Ok(()),
        Some(_) => Err("write the path without `.`, `..`, `//` and final `/`"),
        None if text.contains('/') => Err("a path is absolute; a bare name is looked up on PATH"),
        None if plain(text) => Ok(()),
        None => Err("the program has no name"),
    }
}

fn words(text: &str) -> Result<Vec<Word>, &'static str> {
    let mut words = Vec::new();
    // `Some` inside a word, so that `""` is an argument and two spaces are not.
    let mut word: Option<Word> = None;
    let mut inside_quotes = false;
    for c in text.chars() {
        match c {
            ' ' if !inside_quotes => words.extend(word.take()),
            '"' => {
                inside_quotes = !inside_quotes;
                word.get_or_insert_default();
            }
            c => {
                let pieces = &mut word.get_or_insert_default().0;
                match c {
                    // One `*` after another adds nothing.
                    '*' if !inside_quotes && pieces.last() == Some(&Piece::Many) => {}
                    '*' if !inside_quotes => pieces.push(Piece::Many),
                    '?' if !inside_quotes => pieces.push(Piece::One),
                    c => pieces.push(Piece::Char(c)),
                }
            }
        }
    }
    words.extend(word);
    if inside_quotes { Err("a quote is not closed") } else { Ok(words) }
}

/// An argument as a word of a rule that means just that.
fn quoted(text: &str) -> Option<String> {
    // There is no way to write a quote; a backtick would end the quotation in the message.
    if text.chars().any(|c| matches!(c, '"' | '`') || c.is_control()) {
        return None;
    }
    let plain = !text.is_empty() && !text.contains([' ', '*', '?']);
    Some(if plain { text.to_owned() } else { format!("\"{text}\"") })
}

impl Word {
    /// The text, where there is no `*` or `?` in it.
    fn literal(&self) -> Option<String> {
        self.0.iter().map(|piece| if let Piece::Char(c) = piece { Some(*c) } else { None }).collect()
    }

    /// The usual two-finger match: on a mismatch, the last `*` takes one character more.
    fn matches(&self, text: &str) -> bool {
        if matches!(self.0.first(), Some(Piece::One | Piece::Many)) && text.starts_with('-') {
            return false;
        }
        let mut at = 0;
        let mut rest = text.chars();
        let mut star = None;
        loop {
            match self.0.get(at) {
                None if rest.as_str().is_empty() => return true,
                None => {}
                Some(Piece::Many) => {
                    at += 1;
                    star = Some((at, rest.clone()));
                    continue;
                }
                Some(piece) => {
                    let mut next = rest.clone();
                    let Some(c) = next.next() else { return false };
                    if matches!(piece, Piece::One) || *piece == Piece::Char(c) {
                        at += 1;
                        rest = next;
                        continue;
                    }
                }
            }
            let Some((after_star, from)) = &mut star else { return false };
            if from.next().is_none() {
                return false;
            }
            at = *after_star;
            rest = from.clone();
        }
    }
}
