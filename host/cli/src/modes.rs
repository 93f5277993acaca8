//! The modes of the terminal that a person types at, beside those of the editor.

use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// Keys that are pressed are kept, and neither shown nor changed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Unechoed(Option<Termios>);

impl Unechoed {
    /// Begins, where standard input is a terminal.
    pub(crate) fn begin() -> Self {
        changed(|modes| {
            modes.local_modes &= !(LocalModes::ECHO | LocalModes::ICANON | LocalModes::IEXTEN);
            // Ctrl-C stops a turn, and loses nothing that was typed.
            modes.local_modes |= LocalModes::NOFLSH;
            // Enter is to be the key that the editor knows.
            modes.input_modes &= !InputModes::ICRNL;
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        })
    }

    /// The opposite: the terminal shows what is typed, a line at a time, for a question.
    pub(crate) fn pause() -> Self {
        changed(|modes| {
            modes.local_modes |= LocalModes::ECHO | LocalModes::ICANON | LocalModes::IEXTEN;
            modes.input_modes |= InputModes::ICRNL;
        })
    }
}

fn changed(change: impl FnOnce(&mut Termios)) -> Unechoed {
    let Ok(before) = tcgetattr(std::io::stdin()) else { return Unechoed(None) };
    let mut modes = before.clone();
    change(&mut modes);
    let set = tcsetattr(std::io::stdin(), OptionalActions::Now, &modes);
    Unechoed(set.is_ok().then_some(before))
}

impl Drop for Unechoed {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
