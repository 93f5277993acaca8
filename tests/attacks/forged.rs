//! What is tried of a function of the contract, from its type: a guest that gives it all that a core module can.

use std::fmt::Write as _;

use harness_sandbox::price::Import;
use wit_parser::abi::{AbiVariant, WasmSignature};
use wit_parser::{Function, SizeAlign, Type, TypeDefKind};

use crate::case::Ends;
use crate::compose::{contract, function};
use crate::imports::{before, large, name, proper};

/// One parameter of a function as a core module gives it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    Text(&'static str),
    /// JSON of so many bytes.
    Wide(usize),
    /// A list of texts, or of pairs of them one after the other.
    Texts(&'static [&'static str]),
    Numbers(&'static [u32]),
    Number(u32),
    Float(f64),
    /// What was started before, and a list of that.
    Task,
    Tasks,
}

use Given::{Float, Number, Numbers, Task, Tasks, Text, Texts, Wide};

/// What a parameter is made of, one for each that a core module gives but for lengths.
#[derive(Debug, Clone, Copy)]
enum Leaf {
    Text,
    /// A list: the bytes of an element, and how many texts are in it.
    List(u32, u32),
    /// One of so many: an enumeration, or whether an option is there.
    Choice(u32),
    Number,
    Float,
}

fn leaves(ty: &Type, all: &mut Vec<Leaf>) {
    let (resolve, _) = contract();
    all.push(match ty {
        Type::String => Leaf::Text,
        Type::U8 | Type::U32 | Type::S32 | Type::Bool => Leaf::Number,
        Type::F64 => Leaf::Float,
        Type::Id(id) => match &resolve.types[*id].kind {
            TypeDefKind::Type(ty) => return leaves(ty, all),
            TypeDefKind::Record(record) => return record.fields.iter().for_each(|field| leaves(&field.ty, all)),
            TypeDefKind::Tuple(tuple) => return tuple.types.iter().for_each(|ty| leaves(ty, all)),
            TypeDefKind::Option(ty) => {
                all.push(Leaf::Choice(2));
                return leaves(ty, all);
            }
            TypeDefKind::Enum(words) => Leaf::Choice(words.cases.len().try_into().unwrap()),
            TypeDefKind::List(ty) => {
                let mut inner = Vec::new();
                leaves(ty, &mut inner);
                let texts = inner.iter().filter(|leaf| matches!(leaf, Leaf::Text)).count().try_into().unwrap();
                Leaf::List(sizes().size(ty).size_wasm32().try_into().unwrap(), texts)
            }
            other => panic!("{other:?} is nothing that a function takes"),
        },
        other => panic!("{other:?} is nothing that a function takes"),
    });
}

fn sizes() -> SizeAlign {
    let mut sizes = SizeAlign::default();
    sizes.fill(&contract().0);
    sizes
}

/// Whether there is a text or a list in what a type holds.
fn holds_texts(ty: &Type) -> bool {
    let some = |ty: &Option<Type>| ty.as_ref().is_some_and(holds_texts);
    match ty {
        Type::String => true,
        Type::Id(id) => match &contract().0.types[*id].kind {
            TypeDefKind::List(_) => true,
            TypeDefKind::Type(ty) | TypeDefKind::Option(ty) => holds_texts(ty),
            TypeDefKind::Record(record) => record.fields.iter().any(|field| holds_texts(&field.ty)),
            TypeDefKind::Tuple(tuple) => tuple.types.iter().any(holds_texts),
            TypeDefKind::Result(result) => some(&result.ok),
            _ => false,
        },
        _ => false,
    }
}

/// Where the case of an error lies in the result of a function, where it gives one.
fn error_at(ty: &Type) -> Option<usize> {
    let Type::Id(id) = ty else { return None };
    let TypeDefKind::Result(result) = &contract().0.types[*id].kind else { return None };
    let sizes = sizes();
    let aligns = result.ok.iter().chain(&result.err).map(|ty| sizes.align(ty).align_wasm32());
    Some(ANSWER as usize + aligns.max().unwrap_or(1))
}

/// Where answers go.
const ANSWER: u32 = 512;
/// Where the name of a task is put, and a list of it.
const TASK: u32 = 3072;
const TASK_LENGTH: u32 = 37;
const TASK_LIST: u32 = 3064;
/// Where what is given properly begins.
const DATA: u32 = 4096;
/// Where the memory ends that it begins with.
const END: u32 = 17 << 20;
/// The memory that it grows to where much is given: 60 of the 64 MiB that it may have.
const GROWN: u32 = 60 << 20;
/// Where texts for lists are, one after the other.
const SAME: u32 = 1 << 20;
/// Where much begins, and answers go that are allowed for: behind what a slot of the pools keeps, for it is not the
/// pools that are checked.
const MUCH: u32 = 16 << 20;

/// Something that is tried.
pub(crate) struct Attempt {
    pub(crate) what: String,
    /// The lines that do it.
    does: String,
    pub(crate) ends: Ends,
    /// The layer of its caller.
    pub(crate) caller: Option<&'static str>,
    pub(crate) control: bool,
    pub(crate) large: bool,
}

/// A caller that grants nothing.
const NOTHING: &str =
    "fs: { read: [], write: [] }\nnetwork: []\nexec: { allow: [] }\nenv: []\nservices: []\nsecrets: []";
/// A caller with few calls.
const FEW: &str = "limits: { host_calls: 300, timeout_ms: 300 }";

/// The module of a guest while it is written.
struct Module {
    data: String,
    free: u32,
}

impl Module {
    /// Puts bytes in memory; where they are.
    fn put(&mut self, bytes: &[u8]) -> u32 {
        let at = self.free.next_multiple_of(8);
        let text: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
        writeln!(self.data, "(data (i32.const {at}) \"{text}\")").unwrap();
        self.free = at + u32::try_from(bytes.len()).unwrap();
        at
    }

    /// What is given for a parameter: an address and a length, or a number.
    fn given(&mut self, given: &Given, server: &str) -> Vec<String> {
        let pair = |at: u32, length: usize| vec![constant(at), constant(length.try_into().unwrap())];
        match given {
            Text(text) => {
                let text = text.replace("{server}", server);
                pair(self.put(text.as_bytes()), text.len())
            }
            Wide(bytes) => pair(self.put(format!("\"{}\"", "w".repeat(bytes - 2)).as_bytes()), *bytes),
            Texts(texts) => {
                let mut list = Vec::new();
                for text in *texts {
                    list.extend(self.put(text.as_bytes()).to_le_bytes());
                    list.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
                }
                let names = matches!(texts.first(), Some(&"x-name" | &"LANG"));
                pair(self.put(&list), texts.len() / if names { 2 } else { 1 })
            }
            Numbers(numbers) => {
                let list: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                pair(self.put(&list), numbers.len())
            }
            Number(number) => vec![constant(*number)],
            Float(number) => vec![format!("(f64.const {number})")],
            Task => pair(TASK, TASK_LENGTH as usize),
            Tasks => pair(TASK_LIST, 1),
        }
    }

    fn all_given(&mut self, given: &[Given], server: &str) -> Vec<Vec<String>> {
        given.iter().map(|given| self.given(given, server)).collect()
    }

    /// A list of one text, or of one pair of them.
    fn list_of(&mut self, at: u32, length: u32) -> u32 {
        self.put(&[at, length, at, length].map(u32::to_le_bytes).concat())
    }
}

fn constant(number: u32) -> String {
    format!("(i32.const {number})")
}

/// How it must end.
#[derive(Debug, Clone, Copy)]
enum Must {
    Pass,
    BeDenied,
    Fault,
    /// Give nothing at all.
    GiveNothing,
    NotPass,
    /// Anything that does no harm.
    Anything,
}

impl From<Must> for Ends {
    fn from(must: Must) -> Self {
        let (gives, but) = match must {
            Must::Fault => return Self { fault: Some("…".to_owned()), ..Self::default() },
            Must::Pass => (Some("passed"), None),
            Must::BeDenied => (Some("denied"), None),
            Must::GiveNothing => (None, Some("…")),
            Must::NotPass => (None, Some("\"passed\"")),
            Must::Anything => (None, Some("")),
        };
        Self { gives: gives.map(Into::into), but: but.map(str::to_owned), ..Self::default() }
    }
}

/// All that is tried of a function, while it is put together.
pub(crate) struct Attempts {
    import: Import,
    function: &'static Function,
    signature: WasmSignature,
    kinds: Vec<Leaf>,
    params: Vec<Vec<String>>,
    /// The call with these.
    fine: String,
    /// What is called before, for there to be something to ask for.
    first: String,
    module: Module,
    all: Vec<Attempt>,
}

impl Attempts {
    /// What is tried of a function, and the inside of the module of the guest that does it.
    pub(crate) fn of(import: Import, server: &str) -> (Vec<Attempt>, String) {
        let (_, function) = function(&name(import));
        let mut kinds = Vec::new();
        function.params.iter().for_each(|param| leaves(&param.ty, &mut kinds));
        let signature = contract().0.wasm_signature(AbiVariant::GuestImport, function);
        let mut module = Module { data: String::new(), free: DATA };
        let params = module.all_given(&proper(import), server);
        assert_eq!(kinds.len(), params.len(), "{import:?}: {kinds:?}");
        let fine = call(import, &params, ANSWER);
        let first = first(&mut module, before(import, false), server);
        let all = Vec::new();
        let mut attempts = Self { import, function, signature, kinds, params, fine, first, module, all };
        attempts.calls();
        attempts.answers();
        attempts.large_answers(server);
        for n in 0..attempts.kinds.len() {
            attempts.parameter(n);
        }
        attempts.all_texts();
        let text = attempts.written();
        (attempts.all, text)
    }

    fn add(&mut self, what: impl Into<String>, does: String, must: Must) -> &mut Attempt {
        let what = what.into();
        self.all.push(Attempt { what, does, ends: must.into(), caller: None, control: false, large: false });
        self.all.last_mut().unwrap()
    }

    /// Where the case of an error lies in its answer, where it gives one.
    fn error_at(&self) -> Option<usize> {
        self.function.result.as_ref().and_then(error_at)
    }

    /// Properly, without end, and without a grant.
    fn calls(&mut self) {
        let (first, fine) = (self.first.clone(), self.fine.clone());
        self.add("properly", format!("{first}{fine}"), Must::Pass).control = true;
        let endless = format!("{first}(loop $l {fine} (br $l))");
        self.add("without end", endless, Must::GiveNothing).caller = Some(FEW);
        if self.error_at().is_some() {
            let must = match self.import {
                // A refusal of this one would tell that something is there.
                Import::FsExists => Must::Pass,
                // Nobody, where nothing is granted: its answer is empty.
                Import::AskCan => Must::Pass,
                // Hooks decide on these, and no grant.
                Import::ObserveBefore | Import::ObserveAfter => Must::Anything,
                _ => Must::BeDenied,
            };
            self.add("where nothing is granted", fine, must).caller = Some(NOTHING);
        }
    }

    /// An allocator that lies where an answer, or a refusal, is to be put; and answers that are wanted where nothing is.
    fn answers(&mut self) {
        let (first, fine) = (self.first.clone(), self.fine.clone());
        let gives_text = self.function.result.as_ref().is_some_and(holds_texts);
        let unrefused = [Import::FsExists, Import::AskCan, Import::ObserveBefore, Import::ObserveAfter];
        let refuses = self.error_at().is_some() && !unrefused.contains(&self.import);
        let places = [("at the end of memory", END - 3), ("behind memory", END), ("at the last address", u32::MAX)];
        for (place, at) in places {
            if gives_text {
                self.add(format!("its answer goes {place}"), format!("{first}{}{fine}", lie(at)), Must::Fault);
            }
            if refuses {
                let does = format!("{}{fine}", lie(at));
                self.add(format!("its refusal goes {place}"), does, Must::Fault).caller = Some(NOTHING);
            }
            if self.signature.retptr {
                let does = format!("{first}{}", call(self.import, &self.params, at));
                self.add(format!("its answer is wanted {place}"), does, Must::Fault);
            }
        }
        let ways = [("never comes", 1), ("traps", 2), ("calls it again", 3), ("grows without end", 4)];
        for (way, number) in ways.into_iter().filter(|_| gives_text) {
            let does = format!("{first}{}{fine}", lie(number));
            self.add(format!("memory for its answer {way}"), does, Must::GiveNothing);
        }
    }

    fn large_answers(&mut self, server: &str) {
        let Some(given) = large(self.import) else { return };
        let first = first(&mut self.module, before(self.import, true), server);
        let params = self.module.all_given(&given, server);
        let fine = call(self.import, &params, ANSWER);
        let honest = self.add("for a large answer", format!("{first}{fine}"), Must::Pass);
        (honest.control, honest.large) = (true, true);
        for (place, at, must) in [
            ("whose end is behind memory", END - 512, Must::Fault),
            ("that is its own arguments'", DATA, Must::Anything),
        ] {
            let does = format!("{first}{}{fine}", lie(at));
            self.add(format!("a large answer to a place {place}"), does, must).large = true;
        }
    }

    /// A parameter in every bad way that its type allows.
    fn parameter(&mut self, n: usize) {
        let bad = self.module.put(b"a\xff\xfea");
        match self.kinds[n] {
            Leaf::Text | Leaf::List(1, _) => {
                self.with(n, "a text of all there is", "(call $fill)", [MUCH, GROWN - MUCH], Must::NotPass);
                self.with(n, "a text of 20 MiB", "(call $fill)", [MUCH, 20 << 20], Must::NotPass);
                self.with(n, "a text behind memory", "", [END, 16], Must::Fault);
                self.with(n, "a text over the end of memory", "", [END - 4, 8], Must::Fault);
                self.with(n, "a text at the last address", "", [u32::MAX, 1], Must::Fault);
                self.with(n, "a text of all addresses", "", [1024, u32::MAX], Must::Fault);
                // Bytes are no text.
                if matches!(self.kinds[n], Leaf::Text) {
                    self.with(n, "a text that is none", "", [bad, 4], Must::Fault);
                }
            }
            Leaf::List(bytes, texts) => {
                let of_bad = self.module.list_of(bad, 4);
                let of_none = self.module.list_of(u32::MAX - 15, 8);
                let many = (GROWN - MUCH) / bytes;
                self.with(n, "a list of all there is", "(call $grow)", [MUCH, many], Must::NotPass);
                self.with(n, "a list behind memory", "", [END, 1], Must::Fault);
                self.with(n, "a list over the end of memory", "", [END - 4, 2], Must::Fault);
                self.with(n, "a list of all addresses", "", [1024, u32::MAX], Must::Fault);
                self.with(n, "a list that overflows", "", [1024, u32::MAX / bytes + 2], Must::Fault);
                self.with(n, "a list at an odd address", "", [of_bad + 1, 1], Must::Fault);
                if let Some(count) = 1000_u32.checked_div(texts) {
                    self.with(n, "a list of what is not text", "", [of_bad, 1], Must::Fault);
                    self.with(n, "a list of a text outside of memory", "", [of_none, 1], Must::Fault);
                    let same = [SAME, count];
                    self.with(n, "a list of one text of 20 MiB many times", "(call $same)", same, Must::Fault);
                }
            }
            Leaf::Choice(of) => {
                for number in [of, 255, u32::MAX] {
                    self.with(n, &format!("{number} for one of {of}"), "", [number, 0], Must::Fault);
                }
            }
            Leaf::Number => self.with(n, "the largest number", "", [u32::MAX, 0], Must::Anything),
            Leaf::Float => {
                for number in ["nan", "inf", "-0x1p1023"] {
                    let given = vec![format!("(f64.const {number})")];
                    self.instead(&[n], number, "", &given, Must::Anything);
                }
            }
        }
    }

    fn all_texts(&mut self) {
        let texts: Vec<usize> = (0..self.kinds.len()).filter(|n| matches!(self.kinds[*n], Leaf::Text)).collect();
        if texts.len() > 1 {
            let given = [MUCH, 7 << 20].map(constant);
            self.instead(&texts, "texts of 7 MiB", "(call $fill)", &given, Must::NotPass);
        }
    }

    /// The call with this for a parameter: an address and a length, or a number alone.
    fn with(&mut self, n: usize, what: &str, does: &str, given: [u32; 2], must: Must) {
        let given = given.map(constant);
        let count = self.params[n].len();
        self.instead(&[n], what, does, &given[..count], must);
    }

    fn instead(&mut self, all: &[usize], what: &str, does: &str, given: &[String], must: Must) {
        let mut params = self.params.clone();
        all.iter().for_each(|n| params[*n] = given.to_vec());
        let call = call(self.import, &params, ANSWER);
        self.add(format!("{what} for its parameters {all:?}"), format!("{}{does}\n{call}", self.first), must);
    }

    /// The module: what it is asked for by a number, and done.
    fn written(&self) -> String {
        let mut text = TEMPLATE.replace("{again}", &self.fine);
        for (name, number) in [
            ("{pages}", END >> 16),
            ("{grown}", GROWN >> 16),
            ("{much}", MUCH),
            ("{left}", GROWN - MUCH),
            ("{same}", SAME),
            ("{task}", TASK),
            ("{list}", TASK_LIST),
            ("{free}", self.module.free.next_multiple_of(1 << 16)),
        ] {
            text = text.replace(name, &number.to_string());
        }
        text.push_str(&self.module.data);
        // Which it was of what was given: done, refused, or another error.
        let judged = match self.error_at() {
            None => "(call $say_json (i32.const 2))".to_owned(),
            Some(at) => format!(
                "(if (result i32) (i32.load8_u (i32.const {ANSWER})) \
                 (then (call $say_json (i32.ne (i32.load8_u (i32.const {at})) (i32.const 0)))) \
                 (else (call $say_json (i32.const 2))))"
            ),
        };
        text.push_str("(func (export \"run\") (param $args i32) (param i32) (result i32) (local $n i32)\n");
        text.push_str("(local.set $n (call $number (local.get $args)))\n");
        writeln!(text, "(global.set $free (i32.const {MUCH}))").unwrap();
        for (n, Attempt { does, .. }) in self.all.iter().enumerate() {
            writeln!(text, "(if (i32.eq (local.get $n) (i32.const {n})) (then {does} (return {judged})))").unwrap();
        }
        text.push_str("unreachable)\n");
        text
    }
}

fn lie(to: u32) -> String {
    format!("(global.set $lie (i32.const {to}))\n")
}

/// A call with these parameters, and where its answer is to go.
fn call(import: Import, params: &[Vec<String>], answer: u32) -> String {
    let (_, function) = function(&name(import));
    let signature = contract().0.wasm_signature(AbiVariant::GuestImport, function);
    let answer = if signature.retptr { constant(answer) } else { String::new() };
    let drop = if signature.results.is_empty() { "" } else { " drop" };
    format!("(call ${} {} {answer}){drop}", name(import), params.concat().join(" "))
}

/// The call that comes before; of a task, what it was called is kept.
fn first(module: &mut Module, before: Option<(Import, Vec<Given>)>, server: &str) -> String {
    let Some((import, given)) = before else { return String::new() };
    let params = module.all_given(&given, server);
    let keep = if import == Import::AgentsDelegateAsync { "(call $keep_task)" } else { "" };
    format!("{} {keep}\n", call(import, &params, ANSWER))
}

/// What is the same in all of them. The arguments are `{"n":"017"}`.
const TEMPLATE: &str = r#"
(memory (export "memory") {pages})
(global $lie (mut i32) (i32.const 0))
(global $free (mut i32) (i32.const {free}))
(func (export "cabi_realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32) (local $missing i32)
    (if (i32.eq (global.get $lie) (i32.const 1)) (then (loop $l (br $l))))
    (if (i32.eq (global.get $lie) (i32.const 2)) (then unreachable))
    (if (i32.eq (global.get $lie) (i32.const 3)) (then {again}))
    (if (i32.eq (global.get $lie) (i32.const 4)) (then
        (loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable))
    (if (global.get $lie) (then (return (global.get $lie))))
    (local.set $at (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (local.set $missing (i32.sub
        (i32.add (i32.shr_u (global.get $free) (i32.const 16)) (i32.const 1)) (memory.size)))
    (if (i32.gt_s (local.get $missing) (i32.const 0)) (then (drop (memory.grow (local.get $missing)))))
    (local.get $at))
(func $digit (param $at i32) (result i32) (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
(func $number (param $args i32) (result i32)
    (i32.add (i32.mul (call $digit (i32.add (local.get $args) (i32.const 6))) (i32.const 100))
        (i32.add (i32.mul (call $digit (i32.add (local.get $args) (i32.const 7))) (i32.const 10))
            (call $digit (i32.add (local.get $args) (i32.const 8))))))
(func $grow (drop (memory.grow (i32.sub (i32.const {grown}) (memory.size)))))
(func $fill (call $grow) (memory.fill (i32.const {much}) (i32.const 97) (i32.const {left})))
;; A thousand texts at one place.
(func $same (local $n i32)
    (call $fill)
    (loop $more
        (i32.store (i32.add (i32.const {same}) (i32.mul (local.get $n) (i32.const 8))) (i32.const {much}))
        (i32.store offset=4 (i32.add (i32.const {same}) (i32.mul (local.get $n) (i32.const 8))) (i32.const 20971520))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $n) (i32.const 1000)))))
;; The name of a task out of the answer: `task_` and no `i` of `task_id`.
(func $keep_task (local $at i32) (local $end i32)
    (local.set $at (i32.load (i32.const 516)))
    (local.set $end (i32.add (local.get $at) (i32.load (i32.const 520))))
    (loop $more
        (if (i32.and
                (i32.eq (i32.load (local.get $at)) (i32.const 0x6b736174))
                (i32.ne (i32.load8_u offset=5 (local.get $at)) (i32.const 105)))
            (then
                (memory.copy (i32.const {task}) (local.get $at) (i32.const 37))
                (i32.store (i32.const {list}) (i32.const {task}))
                (i32.store offset=4 (i32.const {list}) (i32.const 37))
                (return)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $more (i32.lt_u (local.get $at) (local.get $end)))))
"#;
