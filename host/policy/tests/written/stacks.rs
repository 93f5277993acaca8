//! Layers only take away.

use std::sync::Arc;

use harness_policy::grant::Grant;
use harness_policy::layer::Layer;

use super::random::{Dice, Request, layer, request};

/// Stacks that are tried.
const STACKS: usize = 1_000_000;

/// Adding a layer never allows what was refused, wherever it is added, and the order of layers never changes an answer.
#[test]
fn a_million_stacks() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut dice = Dice::new(1000 + thread as u64);
                let pool: Vec<Arc<Layer>> = (0..500).map(|_| Arc::new(layer(&mut dice))).collect();
                let requests: Vec<Request> = (0..2000).map(|_| request(&mut dice)).collect();
                let (mut refused, mut allowed, mut lost) = (0, 0, 0);
                for _ in 0..STACKS / threads {
                    let mut layers: Vec<Arc<Layer>> = (0..dice.below(5)).map(|_| dice.one(&pool).clone()).collect();
                    let before = Grant::of(layers.clone());
                    let place = dice.below(layers.len() + 1);
                    layers.insert(place, dice.one(&pool).clone());
                    let after = Grant::of(layers.clone());
                    let turn = dice.below(layers.len());
                    layers.rotate_left(turn);
                    if dice.below(2) == 0 {
                        layers.reverse();
                    }
                    let turned = Grant::of(layers);
                    for _ in 0..4 {
                        let request = dice.one(&requests);
                        let (first, then) = (request.allowed(&before), request.allowed(&after));
                        assert_eq!(then, request.allowed(&turned), "{request:?} {after:#?}");
                        // Without any layer there are the default limits, and nothing else.
                        let silent = before.layers().is_empty() || !speaks(&before, request);
                        assert!(!then || first || silent, "{request:?} {before:#?} {after:#?}");
                        refused += u32::from(!first);
                        allowed += u32::from(then);
                        lost += u32::from(first && !then);
                    }
                }
                // All three happen, and often.
                assert!(refused > 100_000 && allowed > 100_000 && lost > 10_000, "{refused} {allowed} {lost}");
            });
        }
    });
}

/// Whether any layer speaks of what is asked. The project's always does, so that no other layer is the first to.
fn speaks(grant: &Grant, request: &Request) -> bool {
    grant.layers().iter().any(|layer| match request {
        Request::Path(..) => layer.fs.is_some(),
        Request::Host(..) => layer.network.is_some(),
        Request::Command(..) | Request::ChildVariable(_) | Request::Network | Request::Unconfined => {
            layer.exec.is_some()
        }
        Request::Variable(_) => layer.env.is_some(),
        Request::Service(_) => layer.services.is_some(),
        Request::Limit(..) => true,
    })
}
