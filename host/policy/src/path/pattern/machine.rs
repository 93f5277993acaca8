//! A pattern as a machine that reads paths.

use super::{Matcher, Part, PathPattern, Token};
use crate::language::{Machine, Node, Test};

/// The node of a path that is covered whatever follows.
const COVERED: usize = 0;

impl PathPattern {
    /// What [`matches`](Self::matches) says.
    pub fn machine(&self) -> Machine {
        self.exact.machine(false)
    }

    /// What [`matches_in_any_case`](Self::matches_in_any_case) says: either of the two.
    pub fn machines_in_any_case(&self) -> [Machine; 2] {
        [self.exact.machine(false), self.any_case.machine(true)]
    }
}

impl Matcher {
    fn machine(&self, folds: bool) -> Machine {
        // Where the nodes of each part begin.
        let begins: Vec<usize> = self
            .parts
            .iter()
            .scan(COVERED + 1, |next, part| {
                let here = *next;
                *next += match part {
                    Part::Folders => 1,
                    Part::Name(tokens) => tokens.len() + 1,
                };
                Some(here)
            })
            .collect();
        let mut nodes = vec![Node::whatever_follows(COVERED)];
        for (at, (part, here)) in self.parts.iter().zip(&begins).enumerate() {
            let ends = |at| self.arrive(at, &begins).into_iter().map(|to| (Test::End, to)).collect::<Vec<_>>();
            match part {
                Part::Folders => {
                    let mut steps = ends(at);
                    steps.push((Test::Any, *here));
                    nodes.push(Node { steps, ..Node::default() });
                }
                Part::Name(tokens) => {
                    for (token, here) in tokens.iter().zip(*here..) {
                        let next = here + 1;
                        nodes.push(match token {
                            Token::Is(c) => Node { steps: vec![(Test::Is(*c), next)], ..Node::default() },
                            Token::One => Node { steps: vec![(Test::Any, next)], ..Node::default() },
                            Token::Run => Node { steps: vec![(Test::Any, here)], skips: vec![next], ..Node::default() },
                        });
                    }
                    nodes.push(Node { steps: ends(at + 1), ..Node::default() });
                }
            }
        }
        Machine { nodes, start: self.arrive(0, &begins), folds }
    }

    /// Where a path is that has come to a part: see [`Matcher::reach`].
    fn arrive(&self, at: usize, begins: &[usize]) -> Vec<usize> {
        if at >= self.covering {
            return vec![COVERED];
        }
        let mut here: Vec<usize> = begins.get(at).copied().into_iter().collect();
        if self.parts.get(at) == Some(&Part::Folders) {
            here.extend(self.arrive(at + 1, begins));
        }
        here
    }
}
