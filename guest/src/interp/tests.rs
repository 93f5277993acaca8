use serde_json::{Value as Json, json};

use super::*;

fn source(entry: Entry, text: &str) -> Source {
    Source {
        file: "a.yaml".to_owned(),
        text: text.to_owned(),
        first_line: 1,
        indent: 0,
        entry,
        predicate: None,
        coverage: false,
    }
}

/// Runs a test in a thread with room for the deepest calls, and drops what it loaded before the thread's own things go.
fn alone(test: impl FnOnce() + Send + 'static) {
    struct Drops;
    impl Drop for Drops {
        fn drop(&mut self) {
            LOADED.take();
            GLOBALS.take();
        }
    }
    let guarded = move || {
        let _drops = Drops;
        test();
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(guarded).unwrap().join().unwrap();
}

#[test]
fn handle_follows_when_in_one_instance() {
    alone(|| {
        let predicate = Predicate { text: "payload[\"n\"] > 1".to_owned(), line: 3, column: 9 };
        let text = "def handle(event, payload):\n    return modify({\"n\": payload[\"n\"] + 1, \"event\": event})\n";
        let hook = Source { predicate: Some(predicate), ..source(Entry::Hook, text) };
        load(&hook).unwrap();
        assert!(matches("custom.a", r#"{"n": 2}"#).unwrap());
        let decision: Json = serde_json::from_str(&handle("custom.a", r#"{"n": 2}"#).unwrap()).unwrap();
        assert_eq!(decision, json!({"action": "modify", "payload": {"n": 3, "event": "custom.a"}}));
        // What runs now is the hook, not its condition any more.
        phase::check("cache.get", Needs::Any).unwrap();
        // A condition that fails leaves nothing behind either.
        assert!(matches("custom.a", "{}").is_err());
        assert!(handle("custom.a", r#"{"n": 5}"#).is_ok());
    });
}

#[test]
fn a_script_without_coverage_is_not_measured() {
    alone(|| {
        load(&source(Entry::Tool, "def run(args):\n    return {}\n")).unwrap();
        assert_eq!(coverage::lines(), None);
        load(&Source { coverage: true, ..source(Entry::Tool, "def run(args):\n    return {}\n") }).unwrap();
        assert!(coverage::is_on());
        prepare();
        assert_eq!(coverage::lines(), None);
    });
}

/// Lines reached by one call of `run`.
fn reached(text: &str, args: &str) -> Vec<u32> {
    load(&Source { coverage: true, ..source(Entry::Tool, text) }).unwrap();
    let _ = call_run(args);
    coverage::lines().unwrap().reached.into_iter().collect()
}

#[test]
fn branches() {
    alone(|| {
        let text = "\
def run(args):
    n = args['n']
    if n == 1:
        kind = 'one'
    elif n == 2: kind = 'two'
    elif n == 3 or n == 4:
        kind = 'few'
    else:
        kind = 'many'
    for i in range(n):
        if i > 2:
            break
        if i > 1:
            continue
        pass
    return kind
";
        assert_eq!(reached(text, r#"{"n": 0}"#), [1, 2, 3, 5, 6, 9, 10, 16]);
        assert_eq!(reached(text, r#"{"n": 1}"#), [1, 2, 3, 4, 10, 11, 13, 15, 16]);
        assert_eq!(reached(text, r#"{"n": 2}"#), [1, 2, 3, 5, 10, 11, 13, 15, 16]);
        assert_eq!(reached(text, r#"{"n": 4}"#), [1, 2, 3, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16]);
    });
}

#[test]
fn functions_within_functions() {
    alone(|| {
        let text = "\
LIMIT = 3

def double(x):
    return x * 2

def none():
    'Does nothing.'

def never():
    return 1

def run(args):
    def add(x):
        return x + 1

    later = lambda x: add(x)
    both = [double(x) for x in range(LIMIT) if x]
    if LIMIT == 3:
        none()
    else:
        never()
    if args.get('add'):
        return {'sum': later(1)}
    return {'both': both}
";
        assert_eq!(reached(text, "{}"), [1, 3, 4, 6, 9, 12, 13, 16, 17, 18, 19, 22, 24]);
        assert_eq!(reached(text, r#"{"add": true}"#), [1, 3, 4, 6, 9, 12, 13, 14, 16, 17, 18, 19, 22, 23]);
    });
}

#[test]
fn up_to_an_error() {
    alone(|| {
        let text = "def run(args):\n    a = 1\n    b = a // 0\n    return {}\n";
        assert_eq!(reached(text, "{}"), [1, 2, 3]);
        assert_eq!(reached("def run(args):\n    return len\n", "{}"), [1, 2]);
    });
}

/// What a script gives or how it fails, and where.
fn outcome(text: &str, coverage: bool) -> Result<String, Failure> {
    load(&Source { first_line: 7, indent: 2, coverage, ..source(Entry::Tool, text) })?;
    call_run(r#"{"a": [1, 2]}"#)
}

#[test]
fn coverage_changes_no_result_and_no_position() {
    alone(|| {
        let scripts = [
            "def run(args):\n    return {'a': args['a']}\n",
            "def run(args):\n    x = 1; y = args['b']; return {}\n",
            "def run(args):\n    if args['a'] and args['b']: return {}\n    return 1\n",
            "def run(args):\n    if not args:\n        return {}\n    elif args['a'] + 1:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif not args['b']:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif not (args['a'] or args['b'] < 1):\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif args['b'] and args['c']:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif args['a'][\n        5]:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif args.a(1):\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif fail('no'):\n        return {}\n",
            "def run(args):\n    if not args:\n        late = 1\n    elif late:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif -args:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif 1 in 2:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif 1 not in 2:\n        return {}\n",
            "def run(args):\n    if not args:\n        pass\n    elif 1 if args['b'] else 2:\n        return {}\n",
            "def run(args):\n    for x in args['a']:\n        for y in x: pass\n    return {}\n",
            "def run(args):\n    def inner(x = args['b']):\n        return x\n    return inner()\n",
            // One that is not inlined: errors of such a one are told where it is called, if it is not measured.
            "def f(x):\n    x = x\n    return x.nothing\n\ndef run(args):\n    (f(args))\n",
            "def f(x):\n    fail('ä', x)\n\n\n\ndef run(args):\n    'ä'; [f(x) for x in args['a']]\n",
            "A = [1]\ndef run(args):\n    A.append(2)\n    return A\n",
            "def run(args, more = []):\n    more.append(1)\n",
            "A = {}['a']\ndef run(args):\n    return 1\n",
            "def run(args):\n    return unknown\n",
            "def run(args):\n    return (\n",
            "def walk(args):\n    return 1\n",
            "def f(g, n):\n    n -= 1\n    return g(g, n) if n else 0\n\ndef run(args):\n    return f(f, 90)\n",
            "def f(g, n):\n    n -= 1\n    return g(g, n) if n else 0\n\ndef run(args):\n    return f(f, 97)\n",
            "def f(g, n):\n    n -= 1\n    return g(g, n) if n else 0\n\ndef run(args):\n    return f(f, 98)\n",
        ];
        for text in scripts {
            let (without, with) = (outcome(text, false), outcome(text, true));
            assert_eq!(format!("{without:#?}"), format!("{with:#?}"), "{text}");
        }
    });
}

#[test]
fn as_deep_as_without_coverage() {
    alone(|| {
        let text = |depth| {
            format!(
                "def f(g, n):\n    n -= 1\n    return g(g, n) if n else 0\n\ndef run(args):\n    return f(f, {depth})\n"
            )
        };
        let deepest = (0..MAX_CALL_DEPTH).rev().find(|depth| outcome(&text(*depth), false).is_ok()).unwrap();
        assert!(outcome(&text(deepest), true).is_ok());
        let too_deep = outcome(&text(MAX_CALL_DEPTH + 10), true).unwrap_err();
        assert_eq!(too_deep.kind, FailureKind::Depth);
        assert!(too_deep.message.starts_with("function `f` is called recursively"), "{}", too_deep.message);
    });
}

/// The functions of the language that call back hold values meanwhile, while all else is collected around them.
#[test]
fn what_sorted_min_and_max_hold_is_kept() {
    alone(|| {
        let text = "\
def garbage():
    n = 0
    for i in range(200):
        n += len('g' * 20000 + str(i))
    return n

def by(pair):
    garbage()
    kept = ['k' + pair[0], pair[1] * 1000]
    garbage()
    return kept[1:] + kept

def nested(pair):
    best = max([pair, ('x' + pair[0], -1)], key = by)
    return sorted([best, pair], key = lambda p: (garbage(), p[1], 'z' + p[0]))[0][1]

def run(args):
    pairs = [('w%d' % i, 9 - i) for i in range(10)]
    ranked = sorted(pairs, key = by)
    grown = sorted(pairs, key = lambda p: (pairs.append(p), garbage(), nested(p))[2])
    few = sorted(['c' * 3, 'b' * 2, 'a'], key = lambda t: [garbage(), 'k' + t][1], reverse = True)
    return [ranked[0], ranked[9], min(pairs, key = by), max(pairs[0], pairs[1], key = by), grown[0], len(grown), len(pairs), few]
";
        load(&source(Entry::Tool, text)).unwrap();
        let result: Json = serde_json::from_str(&call_run("{}").unwrap()).unwrap();
        assert_eq!(result, json!([["w9", 0], ["w0", 9], ["w9", 0], ["w0", 9], ["w9", 0], 10, 20, ["ccc", "bb", "a"]]));
        // A call that fails leaves nothing behind.
        let text = "\
def run(args):
    return sorted([1, 2], key = lambda x: min([x], key = lambda y: fail('no key')))
";
        load(&source(Entry::Tool, text)).unwrap();
        assert_eq!(call_run("{}").unwrap_err().message, "no key");
    });
}
