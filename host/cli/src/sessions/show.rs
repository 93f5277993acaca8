//! `harness sessions show`.

use harness_session::read::{self, ReadError};
use harness_session::timeline::Timeline;
use harness_session::{FOLDER, html, text};
use harness_sys::output;

use super::super::args::ProjectArgs;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;
use super::{Show, find};

pub(super) fn run(command: &Show, place: &ProjectArgs, printer: Printer) -> Exit {
    // What was meant is nearly always the session, and the file would be written over without a word.
    if let Some(Some(file)) = &command.html
        && let Some(name) = file.to_str().filter(|name| names_a_session(name, place))
    {
        let message = format!("`--html {name}` would write to a file `{name}`, which is the name of a session");
        printer.error(&message, &[], Some(&format!("write `harness sessions show {name} --html FILE.html`")));
        return Exit::Usage;
    }
    let recording = match find(&command.session, place, printer) {
        Ok((_, recording)) => recording,
        Err(exit) => return exit,
    };
    let timeline = Timeline::of(&recording);
    // What a session cost is what the policy says of its models now. One that cannot be read says nothing of them.
    let registry = project::registry(place);
    let models = registry.policy().map(|policy| &policy.models);
    let timeline = timeline.with_prices(&|name| {
        let prices = models?.all().find(|model| model.name.value == name)?.prices?;
        Some((prices.input, prices.output))
    });
    match &command.html {
        _ if command.json => printer.json(&timeline.to_json()),
        None => printer.shown(&text::render(&timeline, printer.colors_data())),
        Some(None) => printer.data(&html::render(&timeline)),
        Some(Some(file)) if file.as_os_str() == "-" => printer.data(&html::render(&timeline)),
        Some(Some(file)) => {
            let (page, root) = (html::render(&timeline), project::root(place));
            if let Err(error) = output::write_report(file, &page, output::Readers::Owner, &[&root]) {
                printer.error(&format!("cannot write `{}`: {error}", file.display()), &[], None);
                return Exit::Usage;
            }
            let name = harness_artifact::escape::line(&file.display().to_string()).into_owned();
            printer.say(&format!("wrote `{name}`"));
        }
    }
    Exit::Completed
}

fn names_a_session(name: &str, place: &ProjectArgs) -> bool {
    let found = read::find(&project::root(place).join(FOLDER), name);
    matches!(found, Ok(_) | Err(ReadError::Ambiguous(..)))
}
