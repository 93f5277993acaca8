//! The mutation score: which checks of the host can be taken away without a test that fails.
//!
//! `tests/mutants/list.toml` names checks, each an expression with what is there without it. All of them are built into
//! one copy of the repository, each behind a switch (`if crate::mutant(7) { without } else { text }`), so that there is one
//! build and not one for each. Then, for each, tests run with that switch on: its area of the corpus, the library's tests
//! of its module, all of the corpus, all of the library's tests. The first that fails has killed it.
//!
//! ```text
//! cargo test --release --test attacks -- --ignored mutants       all
//! cargo test --release --test attacks -- --ignored mutants 7 12  these
//! ```
//!
//! `MUTANTS_CARGO` names another program than `cargo`, `MUTANTS_FOLDER` where the copy is made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value as Json;

use crate::corpus::{AREAS, folder};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    id: u32,
    file: String,
    /// What is checked there, in words.
    check: String,
    /// The expression; it must be in the file once, or `nth` says which one is meant, from 1.
    text: String,
    without: String,
    /// The area of the corpus that should notice.
    area: String,
    nth: Option<usize>,
}

impl Mutant {
    /// The crate that it is in, and the module in that: what tests it may be beside it.
    fn module(&self) -> (&str, &str) {
        let inside = self.file.strip_prefix("host/").and_then(|path| path.split_once("/src/"));
        let (name, path) = inside.unwrap_or_else(|| panic!("{} is in no crate of the host", self.file));
        let module = path.trim_end_matches(".rs").split('/').next().unwrap_or_default();
        (name, if module == "lib" { "" } else { module })
    }

    /// Where its expression is in a file; or how often it is there.
    fn place(&self, text: &str) -> Result<usize, usize> {
        // Tests at the end of a file are not what is to be mutated.
        let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
        let places: Vec<usize> = text[..end].match_indices(&self.text).map(|(at, _)| at).collect();
        match (self.nth, places.as_slice()) {
            (None, [at]) => Ok(*at),
            (Some(nth), places) if nth <= places.len() => Ok(places[nth - 1]),
            (_, places) => Err(places.len()),
        }
    }
}

/// How a switch begins.
const SWITCH: &str = "crate::mutant(";

/// Longest time for a run of tests: a check that is gone may leave something without end.
const TIME: Duration = Duration::from_secs(900);

fn list() -> List {
    let text = fs::read_to_string(folder().join("../mutants/list.toml")).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// What is wrong with the list itself: a check that was written again has to be named again.
pub(crate) fn check() -> Vec<String> {
    let mutants = list().mutant;
    let mut ids = BTreeSet::new();
    let mut wrong = Vec::new();
    for mutant in &mutants {
        if !ids.insert(mutant.id) {
            wrong.push(format!("mutant {} is there twice", mutant.id));
        }
        if !AREAS.contains(&mutant.area.as_str()) {
            wrong.push(format!("mutant {}: `{}` is no area", mutant.id, mutant.area));
        }
    }
    for file in mutants.iter().map(|mutant| mutant.file.as_str()).collect::<BTreeSet<_>>() {
        let text = fs::read_to_string(folder().join("../..").join(file)).unwrap_or_default();
        // In the copy that has the switches, they are looked for no more.
        if !text.contains(SWITCH) {
            wrong.extend(switched(file, &text, &mutants).err());
        }
    }
    wrong
}

/// The text of a file with its mutants behind their switches, or which one has no place in it: it was written again, or
/// lies within another one.
fn switched(file: &str, text: &str, mutants: &[Mutant]) -> Result<String, String> {
    let mut text = text.to_owned();
    for mutant in mutants.iter().filter(|mutant| mutant.file == file) {
        let Mutant { id, check, text: wanted, without, .. } = mutant;
        let at = mutant.place(&text).map_err(|count| {
            format!("mutant {id} ({check}): its text is {count} times in {file}, where those before it have switches")
        })?;
        let switch = format!("(if {SWITCH}{id}) {{ {without} }} else {{ {wanted} }})");
        text.replace_range(at..at + wanted.len(), &switch);
    }
    Ok(text)
}

/// Runs them and prints the score. Whether all were killed.
pub(crate) fn run() -> bool {
    let chosen: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let mutants: Vec<Mutant> = list().mutant;
    let copy =
        std::env::var_os("MUTANTS_FOLDER").map_or_else(|| std::env::temp_dir().join("harness-mutants"), PathBuf::from);
    prepare(&copy, &mutants);
    let Some((attacks, libraries)) = build(&copy) else { return false };
    let all = |mutant: u32| libraries.iter().all(|(_, library)| passes(library, &["-q"], mutant));
    let beside = |mutant: &Mutant| {
        let (name, module) = mutant.module();
        let mut own = libraries.iter().filter(|(library, _)| library.ends_with(&format!("_{name}")));
        own.all(|(_, library)| passes(library, &["-q", module], mutant.id))
    };
    if !passes(&attacks, &[], 0) {
        println!("FAILED the corpus fails without any mutant");
        return false;
    }
    if !all(0) {
        println!("FAILED the library's tests fail without any mutant, or take too long");
        return false;
    }
    let (mut killed, mut tried) = (0, 0);
    for mutant in mutants.iter().filter(|mutant| chosen.is_empty() || chosen.contains(&mutant.id)) {
        let started = Instant::now();
        let by = if !passes(&attacks, &[&mutant.area], mutant.id) {
            mutant.area.clone()
        } else if !beside(mutant) {
            "the library's tests".to_owned()
        } else if !passes(&attacks, &[], mutant.id) {
            "the corpus".to_owned()
        } else if !all(mutant.id) {
            "the library's tests".to_owned()
        } else {
            String::new()
        };
        tried += 1;
        killed += usize::from(!by.is_empty());
        let verdict = if by.is_empty() { "SURVIVED".to_owned() } else { format!("killed by {by}") };
        let took = started.elapsed().as_secs_f64();
        println!("{:>3} {:<36} {:<52} {verdict}, {took:.1} s", mutant.id, mutant.file, mutant.check);
    }
    println!("{killed} of {tried} mutants killed");
    killed == tried
}

/// A copy of what git knows and of what is new, with every mutant behind its switch.
fn prepare(copy: &Path, mutants: &[Mutant]) {
    let top = folder().join("../..").canonicalize().unwrap();
    let files = Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(&top).output().unwrap();
    for file in String::from_utf8(files.stdout).unwrap().lines().filter(|file| top.join(file).is_file()) {
        let to = copy.join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // What has not changed keeps its time, so that it is not built again.
        let new = fs::read(top.join(file)).unwrap();
        if !mutants.iter().any(|mutant| mutant.file == file) && fs::read(&to).ok().as_ref() != Some(&new) {
            fs::write(&to, new).unwrap();
        }
    }
    for file in mutants.iter().map(|mutant| mutant.file.as_str()).collect::<BTreeSet<_>>() {
        let text = fs::read_to_string(top.join(file)).unwrap();
        let new = switched(file, &text, mutants).unwrap_or_else(|wrong| panic!("{wrong}"));
        if fs::read_to_string(copy.join(file)).ok().as_ref() != Some(&new) {
            fs::write(copy.join(file), new).unwrap();
        }
    }
    let switch = "\n/// Whether a mutant is on.\npub fn mutant(id: u32) -> bool {\n    \
        static ON: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();\n    \
        *ON.get_or_init(|| std::env::var(\"MUTANT\").ok()?.parse().ok()) == Some(id)\n}\n";
    let crates: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.module().0).collect();
    for name in crates {
        let library = copy.join("host").join(name).join("src/lib.rs");
        let text = fs::read_to_string(&library).unwrap();
        if !text.contains("pub fn mutant(") {
            fs::write(library, text + switch).unwrap();
        }
    }
}

/// The program of the corpus, and those of the crates' tests by their names.
fn build(copy: &Path) -> Option<(PathBuf, Vec<(String, PathBuf)>)> {
    let cargo = std::env::var_os("MUTANTS_CARGO").unwrap_or_else(|| "cargo".into());
    let tests = ["--lib", "--test", "attacks", "--test", "written", "--test", "mcp"];
    let arguments = [&["test", "--release"][..], &tests, &["--no-run", "--message-format=json"]].concat();
    let output = Command::new(cargo).args(arguments).current_dir(copy).output().unwrap();
    let (mut attacks, mut libraries) = (None, Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Json>(line) else { continue };
        let Some(program) = message["executable"].as_str().map(PathBuf::from) else { continue };
        match message["target"]["name"].as_str() {
            Some("attacks") => attacks = Some(program),
            // The rules of policies as they are written.
            Some("written") => libraries.push(("harness_policy".to_owned(), program)),
            // Servers that the binary fetches, starts and logs in to.
            Some("mcp") => libraries.push(("harness_gateway".to_owned(), program)),
            Some(name) if message["target"]["kind"][0] == "lib" => libraries.push((name.to_owned(), program)),
            _ => {}
        }
    }
    let both = attacks.filter(|_| !libraries.is_empty()).map(|attacks| (attacks, libraries));
    if both.is_none() {
        println!("FAILED the mutants cannot be built:\n{}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let message: Json = serde_json::from_str(line).unwrap_or_default();
            if message["message"]["level"] == "error" {
                println!("{}", message["message"]["rendered"].as_str().unwrap_or_default());
            }
        }
    }
    both
}

/// Whether tests pass with a mutant on; 0 is none.
fn passes(program: &Path, arguments: &[&str], mutant: u32) -> bool {
    let mut command = Command::new("timeout");
    command.arg(TIME.as_secs().to_string()).arg(program).args(arguments).arg("--fail-fast");
    if arguments.first() == Some(&"-q") {
        // The library's tests are libtest's.
        command = Command::new("timeout");
        command.arg(TIME.as_secs().to_string()).arg(program).args(arguments);
    }
    command.env("MUTANT", mutant.to_string());
    // Not by pipes: what a mutant leaves behind would hold them open.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    // What `timeout` ends with: a check that is gone, or a machine that is slow.
    if status.code() == Some(124) {
        println!("    {mutant} with {arguments:?}: not at its end after {} s", TIME.as_secs());
    }
    status.success()
}
