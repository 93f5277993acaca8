//! Events that a script names where it emits one or changes one, and that it may not, or not so.

use super::builtins::{is_mark, own_names};
use super::place;
use super::tokens::{What, tokens};
use crate::diagnostic::{Diagnostic, Position};
use crate::event::Event;
use crate::script::Script;
use harness_policy::text::quoted;

/// Calls of `emit` with a name, written out, that is no event of scripts: each fails.
pub(super) fn refused(script: &Script, source: &Position, most: usize) -> Vec<Diagnostic> {
    let all = tokens(&script.text);
    let own = own_names(&all);
    let mut found = Vec::new();
    for (index, window) in all.windows(4).enumerate() {
        let [call, open, name, after] = window else { continue };
        let (What::Name("emit"), What::Mark('('), What::Text(event), What::Mark(',' | ')')) =
            (call.what, open.what, name.what, after.what)
        else {
            continue;
        };
        // `events.emit`, and none of another name.
        let is_method = is_mark(&all, index.checked_sub(1), '.');
        let of_events =
            index.checked_sub(2).and_then(|at| all.get(at)).is_some_and(|of| of.what == What::Name("events"));
        if found.len() >= most || own.contains("emit") || is_method && !of_events {
            continue;
        }
        let hint = match Event::parse(event) {
            Some(Event::Custom(_)) => continue,
            Some(_) => "the host fires it; a script fires events of its own: `custom.NAME`",
            None => "write `custom.NAME`: after the dot come lower-case letters, digits and underscores",
        };
        let at = place(source, script, name.line, name.column, event.chars().count().saturating_add(2));
        let error = Diagnostic::error(format!("a script may not emit {}: the call fails each time", quoted(event)));
        found.push(error.at(at).hint(hint));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::tests::shown;

    fn of(text: &str) -> Vec<String> {
        let lines = u32::try_from(text.lines().count()).unwrap();
        let script = Script { text: text.to_owned(), first_line: 1, indent: 0, last_line: lines };
        let at = Position { file: "f".into(), line: 1, column: 1, length: 1 };
        shown(&refused(&script, &at, 100))
    }

    #[test]
    fn events_that_scripts_do_not_fire() {
        let own = "the host fires it; a script fires events of its own: `custom.NAME`";
        let form = "write `custom.NAME`: after the dot come lower-case letters, digits and underscores";
        assert_eq!(
            of("def run(args):\n    emit('delegation.pre', {})\n    events.emit(\"custom.a.b\")\n    emit('saved')\n"),
            [
                format!("f:2:10 a script may not emit `delegation.pre`: the call fails each time ({own})"),
                format!("f:3:17 a script may not emit `custom.a.b`: the call fails each time ({form})"),
                format!("f:4:10 a script may not emit `saved`: the call fails each time ({form})"),
            ]
        );
        for fine in [
            "emit('custom.saved', {})\nevents.emit('custom.x')\n",
            "emit(name, 'tool.pre')\nemit('tool.' + name)\n",
            "bus.emit('tool.pre')\n",
            "def emit(name):\n    return name\nx = emit('tool.pre')\n",
            "# emit('tool.pre')\nx = \"emit('tool.pre')\"\n",
        ] {
            assert_eq!(of(fine), [""; 0], "{fine}");
        }
    }
}
