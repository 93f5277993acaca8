//! Layers only take away.

use std::sync::Arc;

use harness_policy::grant::Grant;
use harness_policy::layer::Layer;

use super::random::{Dice, Request, layer, request};

/// Stacks that are tried; without optimization a tenth of them.
const STACKS: usize = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
/// Stacks that are tried once in a while.
const MORE: usize = 1_000_000;

/// Adding a layer never allows what was refused, wherever it is added, and the order of layers never changes an answer.
#[test]
fn a_layer_only_narrows_and_the_order_does_not_matter() {
    in_threads(STACKS);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_stacks() {
    in_threads(MORE);
}

fn in_threads(stacks: usize) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut dice = Dice::new(1000 + thread as u64);
                let pool: Vec<Arc<Layer>> = (0..500).map(|_| Arc::new(layer(&mut dice))).collect();
                let requests: Vec<Request> = (0..2000).map(|_| request(&mut dice)).collect();
                let (mut refused, mut allowed, mut lost) = (0_usize, 0_usize, 0_usize);
                for _ in 0..stacks / threads {
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
                        refused += usize::from(!first);
                        allowed += usize::from(then);
                        lost += usize::from(first && !then);
                    }
                }
                // All three happen, and often.
                let many = stacks / threads / 5;
                assert!(refused > many && allowed > many && lost > many / 10, "{refused} {allowed} {lost}");
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
