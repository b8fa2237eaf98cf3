//! Asking the person at the terminal what a thread may do.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::plan::Asked;
use rye_engine::engine::Asker;
use rye_engine::event::Approval;
use rye_engine::provider::BoxFuture;
use rye_engine::thread_id::ThreadId;

use crate::args::Format;
use crate::report::printable;

/// The person at the terminal; `None` where nobody is.
pub fn terminal(format: Format) -> Option<Arc<dyn Asker>> {
    let somebody = format == Format::Human && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    somebody.then(|| Arc::new(Terminal::default()) as Arc<dyn Asker>)
}

/// Asks one question at a time.
#[derive(Default)]
struct Terminal {
    asking: Arc<Mutex<()>>,
}

impl Asker for Terminal {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: Asked, what: &'a str) -> BoxFuture<'a, Approval> {
        let question = match asked {
            Asked::Call => format!("{thread} asks to use {what}. Allow it?"),
            Asked::Limit => format!("{thread} is at a limit: {what}. Go on?"),
        };
        let turn = Arc::clone(&self.asking);
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || {
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                put(&question)
            });
            answer.await.unwrap_or(Approval::Suspended)
        })
    }
}

/// Only a clear yes is one; without any answer the thread waits for one by mail.
fn put(question: &str) -> Approval {
    let mut line = String::new();
    write!(anstream::stderr().lock(), "{} [y/N] ", printable(question)).ok();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => Approval::Suspended,
        Ok(_) => match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Approval::Approved,
            _ => Approval::Refused,
        },
    }
}
