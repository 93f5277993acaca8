//! The memory of one call: what it drops is taken back while it runs, what it keeps stays what it is, and what it ends for
//! is told with its line.

use crate::project::{Project, Ran};

/// A tool that has so much memory and reads a file of 100,000 bytes.
fn reads(script: &str, memory_mb: u32) -> Ran {
    Project::with_script(script)
        .file("big.txt", &"x".repeat(100_000))
        .policy(&format!("sandbox: {{ limits: {{ memory_mb: {memory_mb} }} }}\n"))
        .run(&["call", "it"])
}

/// Six hundred times what fits at most: by a loop, by a comprehension, in a function that another calls, and where
/// each text is made into others.
#[test]
fn what_is_dropped_is_taken_back() {
    let loops =
        "def run(args):\n    n = 0\n    for i in range(600):\n        n += len(fs.read('big.txt'))\n    return n\n";
    reads(loops, 16).gives("60000000");
    reads(loops, 64).gives("60000000");
    reads("def run(args):\n    return len([fs.read('big.txt')[:10] for i in range(600)])\n", 16).gives("600");
    let below = "def inner():\n    n = 0\n    for i in range(600):\n        n += len(fs.read('big.txt').upper())\n    return n\n\ndef run(args):\n    x = [1, inner(), len([inner() for i in range(2)])]\n    return x\n";
    reads(below, 16).gives("[1,60000000,2]");
    let lines = "def run(args):\n    n = 0\n    for i in range(300):\n        text = 'a\\n' * (10000 + i)\n        for line in text.splitlines():\n            n += len(line)\n        n += len(json.encode({'i': i, 'text': text}))\n    return n\n";
    reads(lines, 32).gives("12184990");
    // What is kept is not dropped.
    reads("def run(args):\n    return len([fs.read('big.txt') for i in range(600)])\n", 32)
        .says(4, "over the limit `memory` of 33554432 bytes at .harness/tools/it.md:4:47");
}

/// Garbage is made and taken back again and again while all kinds of values are kept, changed and iterated over.
const KEPT: &str = r#"
def garbage(n):
    x = []
    for i in range(n):
        x.append('g' * 5000 + str(i))
    return len(x)

def make(n):
    total = [0]
    def add(k, by = 1):
        total[0] += k * by
        garbage(20)
        return total[0]
    return add

def run(args):
    words = ['w%d' % i for i in range(50)]
    by_word = {w: [w, (w, len(w)), {'in': w}] for w in words}
    seen = set.new(words)
    add = make(1)
    out = []
    for w in words:
        for k in by_word[w][2]:
            n = garbage(30)
            out.append((w, k, n, add(len(w), by = 2), w in by_word))
    pairs = [(a, b, garbage(20)) for a in words[:5] for b in by_word[a] if garbage(20)]
    done = []
    for w in words:
        garbage(30)
        if w == 'w40':
            break
        if w in ('w3', 'w4'):
            continue
        done.append(w)
    locked = []
    for w in by_word:
        garbage(10)
        locked.append(w)
    ranked = sorted(words, key = lambda w: (garbage(10), -int(w[1:])))
    for i in range(3):
        by_word['w%d' % i].append(garbage(400))
    names = dict([(str(garbage(10)) + w, by_word[w]) for w in words[:3]])
    return [
        len(out), out[0], out[49], len(pairs), [p[2] for p in pairs[:2]], pairs[4][1], len(done), done[-1],
        locked == words, ranked[:2], names, set.size(seen), by_word['w49'] == ['w49', ('w49', 3), {'in': 'w49'}],
        [x for x in zip(words[:2], seen)],
    ]
"#;

#[test]
fn what_is_kept_stays_what_it_is() {
    let wanted = concat!(
        r#"[50,["w0","in",30,4,true],["w49","in",30,280,true],15,[20,20],["w1",2],38,"w39",true,["w49","w48"],"#,
        r#"{"10w0":["w0",["w0",2],{"in":"w0"},400],"10w1":["w1",["w1",2],{"in":"w1"},400],"10w2":["w2",["w2",2],{"in":"w2"},400]},"#,
        r#"50,true,[["w0","w0"],["w1","w1"]]]"#
    );
    for memory_mb in [16, 64] {
        reads(KEPT, memory_mb).gives(wanted);
    }
    // The same fuel each time, collections and all.
    let project = Project::with_script(KEPT);
    let fuel = || project.run(&["call", "it", "--json"]).json()["usage"]["fuel"].clone();
    assert_eq!(fuel(), fuel());
}

/// Six hundred times what fits at most, in the calls of a `key`.
#[test]
fn what_a_key_drops_is_taken_back() {
    let script = "def run(args):\n    xs = ['w%d' % i for i in range(300)]\n    by = lambda w: [len(fs.read('big.txt')), 'k' + str(2000 - int(w[1:]))][1]\n    return [sorted(xs, key = by)[:2], min(xs, key = by), max(xs, key = by), max(xs[0], xs[1], key = by)]\n";
    reads(script, 16).gives(r#"[["w299","w298"],"w299","w0","w0"]"#);
    // What is sorted is what was there at the start, whatever the calls do to it.
    let grows =
        "def run(args):\n    xs = [3, 1, 2]\n    return [sorted(xs, key = lambda x: [xs.append(9), x][1]), xs]\n";
    reads(grows, 16).gives("[[1,2,3],[3,1,2,9,9,9]]");
    // An error of a call is the script's own, and so is one of what it gives.
    let fails = "def run(args):\n    return sorted([1, 2], key = lambda x: fail('no key of', x))\n";
    reads(fails, 16).says(1, "no key of 1");
    let differs = "def run(args):\n    return min([1, 2], key = lambda x: [1, 'a'][x - 1])\n";
    reads(differs, 16).says(1, "not supported");
}

/// The tables of dicts and sets lie outside of the heap that the interpreter counts by itself.
#[test]
fn what_dicts_hold_is_taken_back() {
    let dicts = "def run(args):\n    n = 0\n    for i in range(100):\n        n += len({k: i for k in range(20000)})\n    return n\n";
    reads(dicts, 16).gives("2000000");
    let sets =
        "def run(args):\n    n = 0\n    for i in range(100):\n        n += len(set(range(20000)))\n    return n\n";
    reads(sets, 16).gives("2000000");
}

/// A list that is iterated over is not changed, before a collection and after.
#[test]
fn what_is_iterated_over_cannot_be_changed() {
    for change in ["xs.append(1)", "xs[0] = 1", "d['new'] = 1"] {
        let script = format!(
            "def run(args):\n    xs = [1, 2, 3]\n    d = {{'a': 1, 'b': 2}}\n    for x in xs:\n        for k in d:\n            n = [('y' * 5000 + str(i))[:1] for i in range(3000)]\n            {change}\n"
        );
        reads(&script, 64).says(1, "This operation mutates an iterable for an iterator while iterating");
    }
}

/// Values within each other deeper than any stack.
#[test]
fn what_is_nested_deeply_is_kept_too() {
    let script = "def run(args):\n    x = []\n    for i in range(30000):\n        x = [x, {'k': i}] if i % 2 else (x, i)\n    n = 0\n    for i in range(3000):\n        n += len('z' * 5000 + str(i))\n    depth = 0\n    for i in range(30000):\n        x = x[0]\n        depth += 1\n    return [depth, len(x), n > 0]\n";
    reads(script, 64).gives("[30000,0,true]");
}

/// However an interpreter ends, it is an outcome with a line.
#[test]
fn each_end_has_its_line() {
    let run = |body: &str| {
        let script = format!(
            "def deep(n):\n    x = []\n    for i in range(n):\n        x = [x]\n    return x\n\ndef run(args):\n    {body}\n"
        );
        reads(&script, 64)
    };
    let memory = "over the limit `memory` of 67108864 bytes at .harness/tools/it.md:10:1";
    run("return len([1, 2, 3] * ((1 << 29) + len(args)))").says(4, memory);
    run("return len((1, 2, 3) * ((1 << 29) + len(args)))").says(4, memory);
    run("return len(('x' * 1000) * ((1 << 20) + len(args)))").says(4, ", where 10485");
    // So is what a dict has no memory for.
    for (grows, place) in [("d[i] = i", "5:7"), ("d |= {i: i}", "6:11")] {
        let script = format!("def run(args):\n    d = {{}}\n    for i in range(1 << 30):\n        {grows}\n");
        let at = format!(".harness/tools/it.md:{place}");
        let memory = format!("over the limit `memory` of 33554432 bytes at {at}, where 12582912 bytes");
        reads(&script, 32).says(4, &memory);
    }
    run("return str(deep(100000))").says(4, "over the limit `stack` of 1048576 bytes at .harness/tools/it.md:");
    run("return deep(100000) == deep(100000)").says(1, "Too many recursion levels");
    // What the top level made is fixed.
    let fixed = Project::with_script("X = [1]\n\ndef run(args):\n    X.append(2)\n").run(&["call", "it"]);
    fixed.says(1, "this value is fixed: what the top level of a script makes is not changed by its functions");
    fixed.says(1, ".harness/tools/it.md:6:7");
}

/// What the top level leaves is more than there is memory for: while it is made, when the next statement collects garbage,
/// or when it is frozen. Each end is one of memory, with little fuel, at what made it.
#[test]
fn a_top_level_that_leaves_too_much_says_where() {
    let load = |top: &str, n: u32| {
        let script = format!("{}\n\ndef run(args):\n    return len(kept)\n", top.replace("{n}", &n.to_string()));
        reads(&script, 16)
    };
    let memory = "loading the script is over the limit `memory` of 16777216 bytes";
    // Where the statement was, or its end, if it was done and its values were copied.
    for (top, places) in [
        ("kept = [str(i) * 50 for i in range({n})]", ["3:11", "3:32"]),
        ("kept = [str(i) * 50 for i in range({n})]\none = 1\ntwo = [one]", ["3:11", "3:32"]),
        ("def fill():\n    return [str(i) * 50 for i in range({n})]\n\nkept = fill()\nmore = 'x'", ["4:15", "4:36"]),
        (
            "kept = {}\n\ndef fill():\n    for i in range({n}):\n        kept[str(i)] = [i] * 40\n\nfill()\n",
            ["6:7", "7:16"],
        ),
    ] {
        load(top, 300).gives("300");
        for n in [20_000, 22_500, 25_000, 27_500, 30_000, 35_000, 100_000] {
            let ran = load(top, n);
            ran.says(2, memory);
            let shown = |place: &&str| ran.err.contains(&format!("--> .harness/tools/it.md:{place}\n"));
            assert!(places.iter().any(|place| shown(&place)), "{n}: {top}: {ran}");
        }
    }
}

/// What scripts do whose values grow with what stands for `{n}`.
const GROWS: [&str; 6] = [
    "x = []\n    for i in range({n}):\n        x.append(i)\n    return len(x)",
    "x = []\n    for i in range({n}):\n        x.append(str(i) * 50)\n    return len(x)",
    "x = [[], []]\n    for i in range({n}):\n        x[i % 2].append((i, x[0][-1:]))\n    return i",
    "return len([str(i) * 50 for i in range({n})])",
    "x = {}\n    for i in range({n}):\n        x[str(i)] = [i, [i]]\n        y = 'g' * 200\n    return len(x)",
    "x = set()\n    for i in range({n}):\n        x.add('%d' % i)\n    return len(x)",
];

/// The fuel of one of them, and how it ended.
fn grown(body: &str, n: u32, memory_mb: u32) -> (u64, String) {
    let script = format!("def run(args):\n    {}\n", body.replace("{n}", &n.to_string()));
    let limits =
        format!("sandbox: {{ limits: {{ memory_mb: {memory_mb}, fuel: 20000000000, timeout_ms: 600000 }} }}\n");
    let report = Project::with_script(&script).policy(&limits).run(&["call", "it", "--json"]).json();
    let ended = report["error"]["kind"].as_str().or(report["outcome"].as_str()).unwrap_or_default().to_owned();
    (report["usage"]["fuel"].as_u64().unwrap(), ended)
}

/// What a script does twice as often takes about twice the fuel, however much of its memory is in use: garbage is
/// collected only after a part of that was allocated anew.
#[test]
fn collecting_garbage_takes_a_part_of_the_fuel() {
    for body in GROWS {
        let mut before: Option<u64> = None;
        for n in [10_000, 20_000, 40_000, 80_000, 160_000, 320_000] {
            let (fuel, ended) = grown(body, n, 512);
            assert_eq!(ended, "completed", "{n}: {body}");
            assert!(before.is_none_or(|before| fuel < before * 3), "{n} take {fuel}, half of it {before:?}: {body}");
            before = Some(fuel);
        }
    }
}

/// Near the end of the memory too.
#[test]
fn the_end_of_memory_takes_little_fuel() {
    for body in GROWS {
        for memory_mb in [16, 20] {
            let [less, more] = [memory_mb, 2 * memory_mb].map(|memory_mb| {
                let (fuel, ended) = grown(body, 1 << 30, memory_mb);
                assert_eq!(ended, "memory", "{memory_mb}: {body}");
                fuel
            });
            // A part of the smaller one is the interpreter itself.
            assert!(less <= more && more < less * 8, "{memory_mb} MiB take {less}, twice as much {more}: {body}");
        }
    }
}

/// A script that is nested too deeply to be loaded says where, whatever it is that is nested.
#[test]
fn a_script_that_is_too_deep_says_where() {
    for (what, of) in [
        ("sum", |n: usize| format!("return {}x", "x + ".repeat(n))),
        ("chain", |n| format!("return 'a'{}", ".strip()".repeat(n))),
        ("list", |n| format!("y = {}1{}", "[".repeat(n), "]".repeat(n))),
        ("not", |n| format!("return {}x", "not ".repeat(n))),
        ("elif", |n| format!("if x:\n        pass\n{}", "    elif x == 2:\n        pass\n".repeat(n))),
    ] as [(&str, fn(usize) -> String); 5]
    {
        for n in [1_600, 6_000, 20_000] {
            let script = format!("def run(args):\n    x = 1\n    {}\n", of(n));
            let ran = Project::with_script(&script).run(&["call", "it"]);
            if ran.err.contains("nested too deeply") {
                ran.says(ran.code, "the script is nested too deeply: give the parts of an expression names");
                ran.says(ran.code, ".harness/tools/it.md:5:");
            }
            assert!(
                !ran.err.contains("the interpreter stopped") && !ran.err.contains("it.md:1:1"),
                "{what} of {n}: {ran}"
            );
        }
    }
}
