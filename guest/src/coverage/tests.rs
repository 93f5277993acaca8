use super::*;

use crate::bindings::exports::harness::sandbox::script::{Entry, Source};

fn place(text: &str, first_line: u32) -> Place {
    Place::of_script(&Source {
        file: "a.yaml".to_owned(),
        text: text.to_owned(),
        first_line,
        indent: 4,
        entry: Entry::Tool,
        predicate: None,
        coverage: true,
    })
}

/// The script with its marks.
fn marked(text: &str) -> Option<String> {
    let ast = AstModule::parse("a.yaml", text.to_owned(), &DIALECT).unwrap();
    let (marked, _) = start(&ast, &place(text, 1))?;
    Some(marked.file_span(Span::default()).file.source().to_owned())
}

/// The lines at which statements begin.
fn statements(text: &str, first_line: u32) -> Vec<u32> {
    let ast = AstModule::parse("a.yaml", text.to_owned(), &DIALECT).unwrap();
    start(&ast, &place(text, first_line)).unwrap();
    lines().unwrap().statements.into_iter().collect()
}

#[test]
fn marks_stand_before_statements() {
    let cases = [
        ("x = 1", "__reached__(1);x = 1"),
        ("x = 1; y = 2", "__reached__(1);x = 1; __reached__(1);y = 2"),
        ("\n'Told.'\n(len([]))", "\n'Told.'\n__reached__(3);(len([]))"),
        ("def f(): return 1", "__reached__(1)\ndef f(): __reached__(1);return 1"),
        (
            "def f(x):\n  for y in x:\n    y += 1; continue",
            "__reached__(1)\ndef f(x):\n  __reached__(2)\n  for y in x:\n    __reached__(3);y += 1; __reached__(3);continue",
        ),
        (
            "def f(x):\n  if x: pass\n  elif(1 or x): pass\n  else: return",
            "__reached__(1)\ndef f(x):\n  __reached__(2)\n  if x: __reached__(2);pass\n  elif __reached__(3) and(1 or x): __reached__(3);pass\n  else: __reached__(4);return",
        ),
        (
            "def f(x):\n  if x: pass\n  elif 1 if (x or 2) else 3: pass",
            "__reached__(1)\ndef f(x):\n  __reached__(2)\n  if x: __reached__(2);pass\n  elif 1 if (__reached__(3) and x or 2) else 3: __reached__(3);pass",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(marked(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn what_cannot_be_marked_is_not_measured() {
    stop();
    assert_eq!(marked("def f(x):\n  return __reached__"), None);
    assert_eq!(marked("def f(x):\n  if x: pass\n  elif lambda: x: pass"), None);
    assert!(!is_on());
}

#[test]
fn lines_are_the_files() {
    let text = "\
# A comment.
A = [
    1,
]

def f(x):
    '''
    What it does.
    '''
    if (x and
        A):
        return [
            y
            for y in A
        ]
    return lambda: 1
";
    assert_eq!(statements(text, 1), [2, 6, 10, 12, 16]);
    assert_eq!(statements(text, 101), [102, 106, 110, 112, 116]);
    assert!(statements("", 1).is_empty());
}
