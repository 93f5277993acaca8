//! A rule as a machine that reads the arguments of its program.

use super::{Args, CommandRule, Piece, Word};
use crate::language::{Machine, Node, Test};

/// The node of arguments that are covered whatever follows.
const COVERED: usize = 0;
/// The node of arguments that are covered if nothing follows.
const DONE: usize = 1;

impl CommandRule {
    /// The program that it is about.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What [`covers`](Self::covers) says of the arguments.
    pub fn machine(&self) -> Machine {
        let mut nodes = vec![Node::whatever_follows(COVERED), Node { accepts: true, ..Node::default() }];
        let (words, end) = match &self.args {
            Args::Any => (&[][..], COVERED),
            Args::Exactly(words) => (words.as_slice(), DONE),
            Args::StartingWith(words) => (words.as_slice(), COVERED),
        };
        // From the last one on, so that each knows where the next one begins.
        let start = words.iter().rev().fold(end, |next, word| word.add_to(&mut nodes, next));
        Machine { nodes, start: vec![start], folds: false }
    }
}

impl Word {
    /// Adds the nodes that read this word and then continue to `next`. Gives back where it begins.
    fn add_to(&self, nodes: &mut Vec<Node>, next: usize) -> usize {
        let first = nodes.len();
        for (piece, here) in self.0.iter().zip(first..) {
            let after = here + 1;
            nodes.push(match piece {
                Piece::Char(c) => Node { steps: vec![(Test::Is(*c), after)], ..Node::default() },
                Piece::One => Node { steps: vec![(Test::Any, after)], ..Node::default() },
                Piece::Many => Node { steps: vec![(Test::Any, here)], skips: vec![after], ..Node::default() },
            });
        }
        nodes.push(Node { steps: vec![(Test::End, next)], ..Node::default() });
        if !matches!(self.0.first(), Some(Piece::One | Piece::Many)) {
            return first;
        }
        // It does not match an option: the first character is none that begins one.
        let mut steps = Vec::new();
        let mut at = Some(first);
        while let Some(node) = at.and_then(|at| nodes.get(at)) {
            steps.extend(node.steps.iter().filter_map(|(test, to)| match test {
                Test::Is('-') => None,
                Test::Any => Some((Test::NotDash, *to)),
                test => Some((*test, *to)),
            }));
            at = node.skips.first().copied();
        }
        nodes.push(Node { steps, ..Node::default() });
        nodes.len().saturating_sub(1)
    }
}
