//! What a server may take of the host at most.

use std::time::Duration;

/// Bytes of a line.
pub const LINE_BYTES: usize = 4 << 20;
/// Values in a line: each takes some hundred bytes, however few it has in the line.
pub const LINE_VALUES: usize = 200_000;
/// Objects and lists within each other in a line.
pub const LINE_DEPTH: usize = 100;
/// Requests that one process answers at one time.
pub const IN_FLIGHT: usize = 64;
/// Pages of a listing.
pub const PAGES: usize = 100;
/// Forms that a server shows a person for one call, and at once.
pub const FORMS: usize = 16;
/// Bytes of a form, its message included.
pub const FORM_BYTES: usize = 16 << 10;
/// How often the result of one call may ask for something.
pub const ROUNDS: usize = 8;
/// Messages in a second that answer nothing, at which a process is ended.
pub const FLOOD: u32 = 5_000;
/// Bytes of a server's instructions.
pub const INSTRUCTIONS_BYTES: usize = 64 << 10;
/// How long a server may be silent when it has read the question for its revisions.
pub const PROBE: Duration = Duration::from_secs(2);
/// How long a server has to begin, and to list its tools, where no call waits for it.
pub const START: Duration = Duration::from_secs(60);
/// How long packages of a server may take to be fetched.
pub const FETCH: Duration = Duration::from_secs(300);
/// How long a process waits for a place among the commands of its project. Its call may end before.
pub const PLACE: Duration = Duration::from_secs(5);
/// How long a process has to end when its standard input has, before it gets SIGTERM.
pub const END: Duration = Duration::from_secs(1);
/// How long it has to end after that, before it is killed.
pub const TERMINATE: Duration = Duration::from_secs(1);
/// How long the end of what a process says to its operator is waited for, when it says nothing more to its client.
pub const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often a server is started again in a run after it has ended by itself.
pub const RESTARTS: u32 = 3;
/// The pause before the first of these; each further one is four times as long.
pub const BACKOFF: Duration = Duration::from_millis(100);
/// Processes of servers that a run keeps at one time.
pub const KEPT: usize = 16;
/// Bytes of a message of a server's that is quoted in an error.
pub const QUOTED: usize = 1024;
/// How long a server at a URL may be silent when it is asked for its revisions: it may be started by that.
pub const PROBE_REMOTE: Duration = Duration::from_secs(10);
/// How long a server at a URL has to begin the stream in which it may ask outside of its answers.
pub const ATTEND: Duration = Duration::from_millis(500);
/// Bytes of the events of one answer together.
pub const STREAM_BYTES: usize = 64 << 20;
/// Messages in the events of one answer that do not answer the request.
pub const STREAM_MESSAGES: u32 = 10_000;
/// Bytes of an answer that refuses a request.
pub const REFUSAL_BYTES: usize = 64 << 10;
/// How often the stream of one answer is continued after it has ended too early.
pub const RESUMES: u32 = 100;
/// The pause before that, where the server names none.
pub const RESUME: Duration = Duration::from_secs(1);
/// The longest pause that a server may name.
pub const MAX_RESUME: Duration = Duration::from_secs(60);
/// Bytes of a session's identifier, and of an event's.
pub const ID_BYTES: usize = 1024;
