//! Runs `rye` at a pseudo-terminal that a terminal emulator reads.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::rye::TestProject;

const OUTPUT_TIMEOUT: Duration = Duration::from_mins(2);
/// Rows of the emulator's scrollback.
const SCROLLBACK_ROWS: usize = 30_000;

/// A command at a pseudo-terminal, with the picture that it shows and all bytes that it wrote.
pub struct PtyTerminal {
    child: Box<dyn Child + Send + Sync>,
    master: Option<Box<dyn MasterPty + Send>>,
    input: Option<Box<dyn Write + Send>>,
    shown: Arc<Mutex<Shown>>,
    reader: JoinHandle<()>,
}

struct Shown {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

impl PtyTerminal {
    /// Starts `rye` with these arguments and variables at a terminal of this size.
    pub fn start(place: &TestProject, (columns, rows): (u16, u16), args: &[&str], variables: &[(&str, &str)]) -> Self {
        let pair = native_pty_system().openpty(size(columns, rows)).unwrap();
        // Creating the command trusts the project, as in every other test.
        let plain = place.command(args);
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_rye"));
        command.args(args);
        command.cwd(place.project());
        for name in ["COLUMNS", "ACCESSIBLE", "NO_COLOR", "COLORTERM"] {
            command.env_remove(name);
        }
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            }
        }
        command.env("TERM", "xterm-256color");
        for (name, value) in variables {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let parser = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), SCROLLBACK_ROWS);
        let shown = Arc::new(Mutex::new(Shown { parser, bytes: Vec::new() }));
        let mut out = pair.master.try_clone_reader().unwrap();
        let sink = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = out.read(&mut chunk) {
                let bytes = chunk.get(..n).unwrap_or_default();
                let mut shown = sink.lock().unwrap();
                shown.parser.process(bytes);
                shown.bytes.extend_from_slice(bytes);
            }
        });
        let input = Some(pair.master.take_writer().unwrap());
        Self { child, master: Some(pair.master), input, shown, reader }
    }

    pub fn process_id(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Returns the rows on the screen, without spaces at their ends.
    pub fn rows(&self) -> Vec<String> {
        let shown = self.shown.lock().unwrap();
        let (_, columns) = shown.parser.screen().size();
        shown.parser.screen().rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Returns the scrollback and the screen as rows.
    pub fn all_rows(&self) -> Vec<String> {
        let mut shown = self.shown.lock().unwrap();
        let screen = shown.parser.screen_mut();
        let (rows, columns) = screen.size();
        let count = screen.scrollback_len();
        let mut all = Vec::new();
        for offset in (1..=count).rev() {
            screen.set_scrollback(offset);
            all.extend(screen.rows(0, columns.get()).next());
        }
        screen.set_scrollback(0);
        all.extend(screen.rows(0, columns.get()).take(rows.get().into()));
        all.iter().map(|row| row.trim_end().to_owned()).collect()
    }

    pub fn cursor(&self) -> (u16, u16) {
        self.shown.lock().unwrap().parser.screen().cursor_position()
    }

    /// Returns all bytes so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.shown.lock().unwrap().bytes.clone()
    }

    /// Waits until the screen meets a condition.
    pub fn wait_until(&self, what: &str, is_met: impl Fn(&[String]) -> bool) {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        while !is_met(&self.rows()) {
            assert!(Instant::now() < until, "never shown: {what}\n{}", self.rows().join("\n"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a row of the screen contains a text.
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |rows| rows.iter().any(|row| row.contains(text)));
    }

    pub fn press(&mut self, keys: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let mut shown = self.shown.lock().unwrap();
        shown.parser.set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
        self.master.as_ref().unwrap().resize(size(columns, rows)).unwrap();
    }

    /// Waits for the end of the process; returns its exit code, the rows of the scrollback and the screen, and all
    /// bytes.
    pub fn end(mut self) -> (u32, Vec<String>, Vec<u8>) {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.exit_code();
            }
            assert!(Instant::now() < until, "the command does not end:\n{}", self.rows().join("\n"));
            std::thread::sleep(Duration::from_millis(10));
        };
        // The reading thread ends after the last handle of the terminal is dropped.
        self.input = None;
        self.master = None;
        std::thread::sleep(Duration::from_millis(50));
        let (rows, bytes) = (self.all_rows(), self.bytes());
        (code, rows, bytes)
    }
}
