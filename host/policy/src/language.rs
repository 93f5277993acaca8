//! The languages of rules: whether there is a word that some rules cover and others do not, and the shortest such word.
//!
//! A rule about paths, commands or names is a [`Machine`] that reads a word: the characters of each part, with an end
//! after each. A [`Search`] runs all machines over all words at once, from the shortest on, and visits each state that
//! they can be in together once. So it finds a word if there is one, and says that there is none only if there is none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use super::path::protected::{fold_case, is_without_width, trims};

/// What a machine reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbol {
    /// A character of a part.
    Char(char),
    /// The end of a part: of a name in a path, of an argument.
    End,
}

/// What a step of a machine takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// This character.
    Is(char),
    /// Any character.
    Any,
    /// Any character but `-`.
    NotDash,
    /// The end of a part.
    End,
    /// Whatever comes.
    Everything,
}

/// A state of a machine. It is in several at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// What leads where.
    pub steps: Vec<(Test, usize)>,
    /// Where it is too when it is here.
    pub skips: Vec<usize>,
    /// Whether a word may end here.
    pub accepts: bool,
}

impl Node {
    /// A word that comes here is covered whatever follows.
    pub fn whatever_follows(here: usize) -> Self {
        Self { steps: vec![(Test::Everything, here)], skips: Vec::new(), accepts: true }
    }
}

/// A rule as something that reads words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its states.
    pub nodes: Vec<Node>,
    /// The states that it begins in, by their index.
    pub start: Vec<usize>,
    /// Whether it reads each part as [folded](super::path::protected): in any letter case, without what has no width
    /// and without dots and spaces at its end.
    pub folds: bool,
}

/// States at one time, sorted.
type Set = Vec<usize>;

impl Machine {
    /// One that covers every word of one part.
    pub fn any_part() -> Self {
        let part = Node { steps: vec![(Test::Any, 0), (Test::End, 1)], ..Node::default() };
        Self { nodes: vec![part, Node { accepts: true, ..Node::default() }], start: vec![0], folds: false }
    }

    fn closed(&self, mut waiting: Vec<usize>) -> Set {
        let mut set = BTreeSet::new();
        while let Some(at) = waiting.pop() {
            if set.insert(at) {
                waiting.extend(self.nodes.get(at).iter().flat_map(|node| &node.skips));
            }
        }
        set.into_iter().collect()
    }

    fn step(&self, set: &Set, symbol: Symbol) -> Set {
        let steps = set.iter().filter_map(|at| self.nodes.get(*at)).flat_map(|node| &node.steps);
        let takes = |test: Test| match (test, symbol) {
            (Test::Everything, _) | (Test::Any, Symbol::Char(_)) | (Test::End, Symbol::End) => true,
            (Test::Is(wanted), Symbol::Char(c)) => wanted == c,
            (Test::NotDash, Symbol::Char(c)) => c != '-',
            _ => false,
        };
        self.closed(steps.filter(|(test, _)| takes(*test)).map(|(_, to)| *to).collect())
    }

    fn accepts(&self, set: &Set) -> bool {
        set.iter().filter_map(|at| self.nodes.get(*at)).any(|node| node.accepts)
    }

    fn characters(&self) -> impl Iterator<Item = char> {
        let steps = self.nodes.iter().flat_map(|node| &node.steps);
        steps.filter_map(|(test, _)| match test {
            Test::Is(c) => Some(*c),
            Test::NotDash => Some('-'),
            _ => None,
        })
    }
}

/// A machine that has been through a part of a word: where it is, and where it would be if the part ended before the
/// dots and spaces that came last.
type Reading = (Set, Set);

/// A machine with the states that it was found to be in.
struct Reader<'a> {
    machine: &'a Machine,
    known: HashMap<Reading, usize>,
    states: Vec<Reading>,
    next: HashMap<(usize, usize), usize>,
}

impl<'a> Reader<'a> {
    fn new(machine: &'a Machine) -> Self {
        let start = machine.closed(machine.start.clone());
        let reading = (start.clone(), start);
        let known = HashMap::from([(reading.clone(), 0)]);
        Self { machine, known, states: vec![reading], next: HashMap::new() }
    }

    fn step(&mut self, from: usize, number: usize, symbol: Symbol) -> usize {
        if let Some(to) = self.next.get(&(from, number)) {
            return *to;
        }
        let (set, trimmed) = self.states.get(from).cloned().unwrap_or_default();
        let reading = match symbol {
            Symbol::End => {
                let set = self.machine.step(if self.machine.folds { &trimmed } else { &set }, Symbol::End);
                (set.clone(), set)
            }
            Symbol::Char(c) if !self.machine.folds => {
                let set = self.machine.step(&set, Symbol::Char(c));
                (set.clone(), set)
            }
            Symbol::Char(c) => folded(c).chars().fold((set, trimmed), |(set, trimmed), c| {
                let set = self.machine.step(&set, Symbol::Char(c));
                let trimmed = if trims(c) { trimmed } else { set.clone() };
                (set, trimmed)
            }),
        };
        let to = *self.known.entry(reading).or_insert_with_key(|reading| {
            self.states.push(reading.clone());
            self.states.len().saturating_sub(1)
        });
        self.next.insert((from, number), to);
        to
    }

    fn accepts(&self, state: usize) -> bool {
        self.states.get(state).is_some_and(|(_, trimmed)| self.machine.accepts(trimmed))
    }

    /// Whether no word that begins so is covered.
    fn is_dead(&self, state: usize) -> bool {
        self.states.get(state).is_none_or(|(set, trimmed)| set.is_empty() && trimmed.is_empty())
    }

    /// Whether every word that begins so is covered.
    fn is_sure(&self, state: usize) -> bool {
        let sure = |set: &Set| {
            let nodes = set.iter().filter_map(|at| Some((*at, self.machine.nodes.get(*at)?)));
            nodes.into_iter().any(|(at, node)| node.accepts && node.steps.contains(&(Test::Everything, at)))
        };
        self.states.get(state).is_some_and(|(set, trimmed)| sure(set) && sure(trimmed))
    }
}

/// A character as [`Machine::folds`] reads it.
fn folded(c: char) -> String {
    let mut folded = fold_case(c.encode_utf8(&mut [0; 4]));
    folded.retain(|c| !is_without_width(c));
    folded
}

/// What parts of words may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Names in a path: not empty, `.` or `..`.
    Names,
    /// Anything.
    Any,
}

/// What is asked for: a word that at least one machine of each list in `within` covers, and none in `without`.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// How words are read.
    pub parts: Parts,
    /// Of each list at least one covers the word.
    pub within: Vec<Vec<&'a Machine>>,
    /// None of these covers it.
    pub without: Vec<&'a Machine>,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The parts of a shortest word.
    Word(Vec<String>),
    /// There is no such word.
    Nothing,
    /// It takes too long to know.
    Unknown,
}

/// States that a search visits at most: about a second of work.
const MAX_STATES: usize = 200_000;

impl Search<'_> {
    /// Looks for a shortest word.
    pub fn find(&self) -> Found {
        let alphabet = self.alphabet();
        let mut readers: Vec<Reader<'_>> =
            self.within.iter().flatten().chain(&self.without).map(|machine| Reader::new(machine)).collect();
        // The part of each machine in the question: its list, none for those that must not cover.
        let lists =
            self.within.iter().enumerate().flat_map(|(list, machines)| machines.iter().map(move |_| Some(list)));
        let lists: Vec<Option<usize>> = lists.chain(self.without.iter().map(|_| None)).collect();

        let start = (Name::Begins, vec![0; readers.len()]);
        let mut known: HashMap<(Name, Vec<usize>), usize> = HashMap::from([(start.clone(), 0)]);
        let mut queue = vec![(start, None)];
        let mut at = 0;
        while let Some(((name, states), _)) = queue.get(at).cloned() {
            let mut covered = vec![false; self.within.len()];
            let mut possible = vec![false; self.within.len()];
            let (mut excluded, mut hopeless) = (false, false);
            for ((reader, state), list) in readers.iter().zip(&states).zip(&lists) {
                match list {
                    Some(list) => {
                        if let (Some(covered), Some(possible)) = (covered.get_mut(*list), possible.get_mut(*list)) {
                            *covered |= reader.accepts(*state);
                            *possible |= !reader.is_dead(*state);
                        }
                    }
                    None => {
                        excluded |= reader.accepts(*state);
                        hopeless |= reader.is_sure(*state);
                    }
                }
            }
            if name == Name::Begins && !excluded && covered.iter().all(|covered| *covered) {
                return Found::Word(word(&queue, at, &alphabet));
            }
            if !hopeless && possible.iter().all(|possible| *possible) {
                for (number, symbol) in alphabet.iter().enumerate() {
                    let Some(name) = name.after(*symbol, self.parts) else { continue };
                    let states: Vec<usize> = readers
                        .iter_mut()
                        .zip(&states)
                        .map(|(reader, state)| reader.step(*state, number, *symbol))
                        .collect();
                    let next = (name, states);
                    if !known.contains_key(&next) {
                        if known.len() >= MAX_STATES {
                            return Found::Unknown;
                        }
                        known.insert(next.clone(), queue.len());
                        queue.push((next, Some((at, number))));
                    }
                }
            }
            at += 1;
        }
        Found::Nothing
    }

    /// A character of each kind that the machines distinguish, and the end of a part.
    fn alphabet(&self) -> Vec<Symbol> {
        let machines = || self.within.iter().flatten().chain(&self.without);
        let characters = |folds: bool| -> BTreeSet<char> {
            machines().filter(|machine| machine.folds == folds).flat_map(|machine| machine.characters()).collect()
        };
        let (plain, folding) = (characters(false), characters(true));
        let known = |c: char| plain.contains(&c) || folding.contains(&c);
        // One that no rule names and that is nothing special stands for all of those.
        let other = ('a'..='z').rev().chain('0'..='9').chain('\u{4e00}'..='\u{9fff}').find(|c| !known(*c) && *c != '-');
        let mut alphabet: Vec<char> = plain.iter().chain(&folding).copied().chain(other).collect();
        if machines().any(|machine| machine.folds) {
            alphabet.extend(['.', ' ']);
            // Of those that fold to something else, one of each kind.
            let mut kinds = BTreeMap::new();
            for (c, text) in changed_by_folding().iter().filter(|(c, _)| !known(*c)) {
                let kind: String =
                    text.chars().map(|c| if folding.contains(&c) || trims(c) { c } else { '\0' }).collect();
                kinds.entry(kind).or_insert(*c);
            }
            alphabet.extend(kinds.into_values());
        }
        let mut seen = BTreeSet::new();
        alphabet.retain(|c| seen.insert(*c) && *c != '/' && *c != '\0');
        std::iter::once(Symbol::End).chain(alphabet.into_iter().map(Symbol::Char)).collect()
    }
}

/// How far a part has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Begins,
    Dot,
    Dots,
    Goes,
}

impl Name {
    fn after(self, symbol: Symbol, parts: Parts) -> Option<Self> {
        match (self, symbol) {
            (Self::Goes, Symbol::End) => Some(Self::Begins),
            (_, Symbol::End) => (parts == Parts::Any).then_some(Self::Begins),
            (Self::Begins, Symbol::Char('.')) => Some(Self::Dot),
            (Self::Dot, Symbol::Char('.')) => Some(Self::Dots),
            (_, Symbol::Char(_)) => Some(Self::Goes),
        }
    }
}

type Visited = ((Name, Vec<usize>), Option<(usize, usize)>);

/// The word that leads to a state.
fn word(queue: &[Visited], mut at: usize, alphabet: &[Symbol]) -> Vec<String> {
    let mut symbols = Vec::new();
    while let Some((_, Some((from, number)))) = queue.get(at) {
        symbols.extend(alphabet.get(*number).copied());
        at = *from;
    }
    let mut parts = Vec::new();
    let mut part = String::new();
    for symbol in symbols.into_iter().rev() {
        match symbol {
            Symbol::Char(c) => part.push(c),
            Symbol::End => parts.push(std::mem::take(&mut part)),
        }
    }
    parts
}

/// The characters that are not the same when they are folded, and what they are then.
fn changed_by_folding() -> &'static [(char, String)] {
    static CHANGED: OnceLock<Vec<(char, String)>> = OnceLock::new();
    CHANGED.get_or_init(|| {
        let all = ('\0'..=char::MAX).filter(|c| !super::path::is_refused(*c)).map(|c| (c, folded(c)));
        all.filter(|(c, text)| !text.chars().eq([*c])).collect()
    })
}
