//! Raw mode of the terminal during a chat (single keys instead of lines), and the restoration of the earlier mode.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyEvent, KeyModifiers, KeyboardEnhancementFlags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use rye_compiler::key_bindings::{KeyAction, KeyBindings};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, MutexGuard};

use super::keys::action_of;
use super::screen::{MIN_COLUMNS, TerminalSize};
use crate::options::Format;
use crate::report::Printer;

/// True while the terminal is in raw mode.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Returns true if a chat can use the whole terminal: stdin, stdout and stderr are terminals, the terminal is wide
/// enough and can move the cursor, and no option or variable requests plain lines.
pub fn can_use_screen(report: &Printer) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let has_motion = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
    report.format() == Format::Human
        && !report.is_quiet()
        && !report.has_log()
        && is_terminal
        && has_motion
        && !is_set("ACCESSIBLE")
        && terminal_size().is_some_and(|size| size.columns >= MIN_COLUMNS)
}

/// Returns the size of the terminal; `None` if the terminal does not report a size.
pub fn terminal_size() -> Option<TerminalSize> {
    let (columns, rows) = crossterm::terminal::size().ok()?;
    (columns > 0 && rows > 0).then_some(TerminalSize { columns, rows })
}

/// Switches the terminal to raw mode, which sends single keys. A panic hook restores the terminal.
pub fn enter_raw_mode() -> io::Result<()> {
    crossterm::terminal::enable_raw_mode()?;
    if !IS_RAW.swap(true, Ordering::SeqCst) {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            previous(panic);
        }));
    }
    let keys = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
    crossterm::execute!(io::stdout(), EnableBracketedPaste, PushKeyboardEnhancementFlags(keys))
}

/// Restores the terminal, if it is in raw mode.
pub fn restore_terminal() {
    if IS_RAW.swap(false, Ordering::SeqCst) {
        // The terminal may be gone.
        crossterm::execute!(io::stdout(), PopKeyboardEnhancementFlags, DisableBracketedPaste).ok();
        io::stdout().write_all(b"\x1b[?7h\x1b[?25h").and_then(|()| io::stdout().flush()).ok();
        crossterm::terminal::disable_raw_mode().ok();
    }
}

/// The signals that continue a stopped process (SIGCONT).
pub struct ContinueSignals(Signal);

impl ContinueSignals {
    /// Starts to receive `SIGCONT`, for the rest of the process. Must be called inside a Tokio runtime.
    pub fn install() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?))
    }

    /// Waits for the next `SIGCONT`, which continues a suspended process.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// The reader of the keys that the user presses. The next session of a chat uses the same reader, so that no key is
/// lost between two sessions.
#[derive(Debug, Default)]
pub struct KeyReader {
    channel: OnceLock<KeyChannel>,
    /// The key bindings of the user.
    pub bindings: KeyBindings,
}

#[derive(Debug)]
struct KeyChannel {
    events: Mutex<UnboundedReceiver<Event>>,
    /// A channel with which the session makes the OS thread that reads keys continue after a key that opens an external
    /// editor.
    resume: Sender<()>,
}

impl KeyReader {
    /// Creates a reader for a user with these key bindings.
    pub fn new(bindings: KeyBindings) -> Self {
        Self { channel: OnceLock::new(), bindings }
    }

    /// Returns the receiver of the keys, which holds the keys that no session has read yet. Waits until no other
    /// session uses the receiver. The first call starts the OS thread that reads keys. The terminal must be in raw mode
    /// by then.
    pub async fn keys(&self) -> MutexGuard<'_, UnboundedReceiver<Event>> {
        self.channel.get_or_init(|| read_keys(self.bindings.clone())).events.lock().await
    }

    /// Continues reading after a key with the action [`KeyAction::ExternalEditor`]. Before this call, the external
    /// editor receives all keys.
    pub fn resume(&self) {
        if let Some(channel) = self.channel.get() {
            // The send fails if the reading thread has ended, because the terminal was closed.
            channel.resume.send(()).ok();
        }
    }
}

/// Reads keys on a separate OS thread, which lives until the process ends, because a read of a terminal cannot be
/// cancelled.
fn read_keys(bindings: KeyBindings) -> KeyChannel {
    let (sender, receiver) = unbounded_channel();
    let (resume, resumed) = channel();
    std::thread::spawn(move || {
        let mut is_typed_before = true;
        while let Ok(event) = next_event(&mut is_typed_before) {
            let opens_editor =
                matches!(event, Event::Key(key) if action_of(key, &bindings) == KeyAction::ExternalEditor);
            if sender.send(event).is_err() || (opens_editor && resumed.recv().is_err()) {
                return;
            }
        }
    });
    KeyChannel { events: Mutex::new(receiver), resume }
}

/// Waits for the next event. `is_typed_before` is true while the events that were typed before raw mode are read.
///
/// Before raw mode, the terminal stores Enter as a line feed. In raw mode, a line feed means Ctrl+J, which starts a new
/// line. The function therefore turns a line feed that was typed before raw mode into Enter.
fn next_event(is_typed_before: &mut bool) -> io::Result<Event> {
    // With a timeout of zero, `poll` would not read the terminal.
    *is_typed_before = *is_typed_before && crossterm::event::poll(Duration::from_millis(1))?;
    let event = crossterm::event::read()?;
    Ok(if *is_typed_before { enter_of_line_feed(event) } else { event })
}

/// Returns Enter for Ctrl+J, and every other event unchanged.
fn enter_of_line_feed(event: Event) -> Event {
    let line_feed = KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL);
    if event == Event::Key(line_feed) { Event::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE)) } else { event }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Read;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    /// An environment variable that is set in the process that the test below starts at the pseudo-terminal.
    const PANICS: &str = "TEST_PANICS";

    #[test]
    fn panic_restores_the_terminal() {
        if std::env::var_os(PANICS).is_some() {
            enter_raw_mode().unwrap();
            panic!("as the test requires");
        }
        let folder = tempfile::tempdir().unwrap();
        let test = "command::chat::raw_mode::tests::panic_restores_the_terminal";
        let program = std::env::current_exe().unwrap();
        let line = format!(
            "stty -a > before; '{}' --exact {test} --nocapture; echo $? > code; stty -a > after",
            program.display()
        );
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", &line]);
        command.cwd(folder.path());
        command.env(PANICS, "1");
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut output = pair.master.try_clone_reader().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = output.read(&mut chunk) {
                bytes.extend_from_slice(chunk.get(..n).unwrap_or_default());
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        child.wait().unwrap();
        drop(pair.master);
        let shown = reader.join().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_ne!(read("code").trim(), "0", "{shown}");
        assert_eq!(read("after"), read("before"), "{shown}");
        assert!(read("after").contains(" icanon"), "{shown}");
        // The message follows the restoration, so it is readable.
        let restored = shown.rfind("\x1b[?2004l").unwrap();
        assert!(shown.rfind("\x1b[?2004h").unwrap() < restored, "{shown}");
        assert!(restored < shown.find("as the test requires").unwrap(), "{shown}");
    }
}
