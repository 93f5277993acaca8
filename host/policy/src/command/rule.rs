//! One rule about commands, as an operator writes it.

mod machine;

use std::fmt;

use crate::item;
use crate::network::shown;
use crate::text::is_hidden;

/// A command that may be run: `git`, `cargo test *`, `/opt/tools/lint --fix "src/*.rs"`.
///
/// Words are split on spaces. Double quotes keep spaces together, and what is in them means itself. `*` stands for any
/// characters of one argument and `?` for one; an argument that starts with `-` is an option, and a word that starts
/// with `*` or `?` does not match it. A last word `*` stands for any further arguments, options too.
///
/// A rule can also be a list, `{ argv: [git, log, "--format=%H \"x\""] }`: this program with exactly these arguments,
/// whatever characters are in them. A list with the program alone is the program without arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRule {
    /// As it was written, or would be.
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
/// Bytes of all items of a list together: as much as a script passes to an interpreter.
const MAX_LIST_BYTES: usize = 16 << 10;
/// Items of a list.
const MAX_LIST: usize = 256;
/// Bytes of a rule that a message shows.
const MAX_SHOWN: usize = 600;

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

    /// The rule for one program with exactly these arguments. An error says in one line what is wrong.
    pub fn exactly(program: &str, args: &[String]) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{}` is not a command: {why}", shown(program));
        is_program(program).map_err(wrong)?;
        if program.chars().any(char::is_control) || args.iter().any(|arg| arg.contains('\0')) {
            return Err(wrong("there is a control character in it"));
        }
        let bytes = args.iter().fold(program.len(), |sum, arg| sum.saturating_add(arg.len()));
        if bytes > MAX_LIST_BYTES || args.len() >= MAX_LIST {
            return Err(wrong("a list is over 16,384 bytes or 256 items"));
        }
        let items: Vec<String> =
            std::iter::once(program).chain(args.iter().map(String::as_str)).map(item::scalar).collect();
        let words = args.iter().map(|arg| Word(arg.chars().map(Piece::Char).collect()));
        let text = format!("{{ argv: [{}] }}", items.join(", "));
        Ok(Self { text, program: program.to_owned(), args: Args::Exactly(words.collect()) })
    }

    /// The rule that allows one command and no other, as an item of a YAML list. None where no rule does: the program is
    /// none that a rule can name, or the command is over the bounds of a rule.
    pub fn item_for(program: &str, args: &[String]) -> Option<String> {
        match Self::line_for(program, args) {
            Some(line) => Some(item::scalar(&line)),
            None => Self::exactly(program, args).ok().map(|rule| rule.text),
        }
    }

    /// The same for a message: `Err` where the rule would be too long to show.
    pub fn shown_for(program: &str, args: &[String]) -> Option<Result<String, ()>> {
        let item = match Self::line_for(program, args) {
            Some(line) => item::in_message(&line),
            None => Self::exactly(program, args).ok()?.text,
        };
        Some(if item.len() > MAX_SHOWN { Err(()) } else { Ok(item) })
    }

    /// The rule that is a line, where one allows the command and no other. A program alone allows any arguments.
    fn line_for(program: &str, args: &[String]) -> Option<String> {
        if args.is_empty() {
            return None;
        }
        let line = Self::spelled(program, args)?;
        Self::parse(&line).is_ok().then_some(line)
    }

    /// A command in the words of a rule, where they can say it.
    pub fn spelled(program: &str, args: &[String]) -> Option<String> {
        let mut line = quoted(program)?;
        for arg in args {
            line.push(' ');
            line.push_str(&quoted(arg)?);
            if line.len() > MAX_BYTES {
                return None;
            }
        }
        Some(line)
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
    // There is no way to write a quote or a control character; what is hard to distinguish is for a list.
    if text.chars().any(|c| matches!(c, '"' | '`') || is_hidden(c)) {
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
